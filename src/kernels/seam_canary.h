// A small forward pass through every op of the seam: prefill across a split of the attention, then single tokens. Its
// digest is the same on every backend that keeps the contract, so a backend whose machine was not here when its tests
// ran can find out at start-up.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "kernels/backend.h"

namespace nibble::kernels {

// What NVFP4 weights meet is of the format; the backend must have it, and is left in it.
Result<std::uint64_t> seam_canary_digest(Backend& backend, ActivationFormat format = ActivationFormat::kA11);
std::uint64_t seam_canary_expected(ActivationFormat format);

// That of a11 with what a backend of every Ability has: scaled embeddings, norms of heads and of outputs, a sliding
// window and GELU gates.
Result<std::uint64_t> seam_canary_abilities_digest(Backend& backend);
extern const std::uint64_t kSeamCanaryAbilitiesDigest;

// All of these that the backend has; it is left in a11. Refuses one that sings another digest.
Status check_seam_canary(Backend& backend);

}  // namespace nibble::kernels
