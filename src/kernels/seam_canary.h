// A small forward pass through every op of the seam: prefill across a split of the attention, then single tokens. Its
// digest is the same on every backend that keeps contract nc1, so a backend whose machine was not here when its tests
// ran can find out at start-up.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "kernels/backend.h"

namespace nibble::kernels {

Result<std::uint64_t> seam_canary_digest(Backend& backend);
extern const std::uint64_t kSeamCanaryDigest;

}  // namespace nibble::kernels
