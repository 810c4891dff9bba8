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

// The same with what a backend of every Ability has: scaled embeddings, norms of heads and of outputs, a sliding window
// and GELU gates.
Result<std::uint64_t> seam_canary_abilities_digest(Backend& backend);
extern const std::uint64_t kSeamCanaryAbilitiesDigest;

}  // namespace nibble::kernels
