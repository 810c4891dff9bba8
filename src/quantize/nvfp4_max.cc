#include "quantize/nvfp4_max.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/check.h"
#include "format/nvfp4.h"

namespace nibble {
namespace {

constexpr std::size_t kGroup = 16;

float group_amax(const float* weights) {
  std::uint32_t amax = 0;  // magnitudes of finite floats are ordered like their bits
  for (std::size_t i = 0; i < kGroup; ++i) amax = std::max(amax, format::abs_bits(weights[i]));
  return format::bits_float(amax);
}

// The codes of one group, divided by the rounded scale: multiplying by a reciprocal would move ties.
void encode_group(const float* weights, float divisor, std::uint8_t* codes) {
  std::array<std::uint32_t, kGroup> code{};
  for (std::size_t i = 0; i < kGroup; ++i) {
    const float scaled = weights[i] / divisor;
    const std::uint32_t magnitude = format::e2m1_encode(scaled) & 7U;
    code[i] = magnitude | (scaled < 0 ? 8U : 0U);  // not the sign bit: -0 is code 0
  }
  for (std::size_t i = 0; i < kGroup / 2; ++i) codes[i] = static_cast<std::uint8_t>(code[2 * i] | code[2 * i + 1] << 4);
}

}  // namespace

float max_tensor_scale(float amax) {
  return amax == 0 ? 1.0F : amax / 2688.0F;
}

std::uint8_t max_block_scale(float amax, float tensor_scale) {
  const float scale = amax / (6.0F * tensor_scale);
  return format::e4m3_encode(scale == 0 ? 1.0F : std::clamp(scale, 0x1p-9F, format::kE4m3Max));
}

void quantize_row_max(std::span<const float> weights, float tensor_scale, std::span<std::uint8_t> codes,
                      std::span<std::uint8_t> scales) {
  NIBBLE_CHECK(
      weights.size() % kGroup == 0 && codes.size() == weights.size() / 2 && scales.size() == weights.size() / kGroup,
      "a row whose codes or scales have another width");
  for (std::size_t group = 0; group < scales.size(); ++group) {
    const float* from = weights.data() + group * kGroup;
    scales[group] = max_block_scale(group_amax(from), tensor_scale);
    encode_group(from, format::e4m3_decode(scales[group]) * tensor_scale, codes.data() + group * kGroup / 2);
  }
}

}  // namespace nibble
