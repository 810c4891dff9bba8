// The choice of the next token (docs/contract.md, section 9): fixed-point weights, exact sums, counter-based noise.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace nibble::oracle {

// Philox4x32-10 of Salmon et al., SC 2011: ten rounds over a counter of four words under a key of two.
std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// The one random number of a token: key = seed, counter = (position, request), the first two words of the result.
std::uint64_t token_noise(std::uint64_t seed, std::uint64_t position, std::uint64_t request);

struct SamplingParameters {
  float temperature = 1;  // below 2^-20: greedy
  int top_k = 0;          // 0: all
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  std::vector<std::pair<std::int32_t, float>> logit_bias = {};  // (token, added)
};

// Step 1, in place: penalties for each distinct token of `context`, then the biases.
void apply_penalties(const SamplingParameters& parameters, std::span<const std::int32_t> context,
                     std::span<float> logits);

// floor(2^(x * c) * 2^40) for x <= 0, c > 0; 0 below 2^-41.
std::uint64_t fixed_point_weight(float x, float c);

// The token for logits that went through apply_penalties. -infinity is a token that cannot be drawn.
std::int32_t select_token(const SamplingParameters& parameters, std::span<const float> logits, std::uint64_t noise);

}  // namespace nibble::oracle
