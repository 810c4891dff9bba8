// Rotary position embedding (docs/contract.md, section 8) and the integer oscillator of the nc1-f16 lane.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace nibble::oracle {

// Rotates the first 2 * pairs dimensions of one head in place. cos_sin: [pairs, 2]. Pairs are (2i, 2i + 1) if
// `interleaved`, otherwise (i, i + pairs).
void rope(std::span<float> head, std::span<const float> cos_sin, bool interleaved);

constexpr int kOscillatorPairs = 64;  // head_dim 128, base 500000

// (cos, sin) of one position for every pair, by the oscillator of the nc1-f16 lane: integers but for theta itself.
std::array<float, 2 * kOscillatorPairs> oscillator_cos_sin(std::int32_t position);

}  // namespace nibble::oracle
