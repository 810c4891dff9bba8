#include "oracle/activations.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "format/contract_math.h"
#include "format/half.h"
#include "format/nvfp4.h"

namespace nibble::oracle {
namespace {

using namespace format;

float round_to_f16(float x) {
  return f16_to_f32(f32_to_f16(x));
}

// The rne of the older lane: it keeps the low 23 bits only, by which a NaN becomes 0.
int rne_low_bits(float x, float s) {
  return static_cast<int>(float_bits(fma_rn(x, s, 12582912.0F)) & 0x7FFFFFU) - 0x400000;
}

void quantize_a11_block(std::span<const float> x, std::span<std::int16_t> q, float& d, bool& finite) {
  u32 max_bits = 0;
  for (const float v : x) max_bits = std::max(max_bits, abs_bits(v));
  const float max = bits_float(max_bits);
  std::ranges::fill(q, std::int16_t{0});
  d = 0;
  if (is_nonfinite(max)) {
    d = std::numeric_limits<float>::quiet_NaN();
    finite = false;
    return;
  }
  if (max < nc1::kTiny) return;
  const float inv = static_cast<float>(kA11Max) / max;
  for (std::size_t i = 0; i < x.size(); ++i) q[i] = static_cast<std::int16_t>(rne(x[i], inv));
  d = max / static_cast<float>(kA11Max);
}

void quantize_a16q8_block(std::span<const float> x, std::span<std::int8_t> q, float& d) {
  float largest = 0;  // signed, the first of the greatest magnitudes
  for (const float v : x) {
    const float h = round_to_f16(v);
    if (abs_value(h) > abs_value(largest)) largest = h;  // false for NaN
  }
  std::ranges::fill(q, std::int8_t{0});
  d = 0;
  if (largest == 0) return;
  const float inv = -127.0F / largest;
  for (std::size_t i = 0; i < x.size(); ++i) {
    q[i] = static_cast<std::int8_t>(std::min(rne_low_bits(round_to_f16(x[i]), inv), 127));
  }
  d = 1.0F / inv;
}

// The code of magnitude m under the decoded group scale s, by comparison with the boundaries instead of a division.
std::uint8_t code_under_scale(float m, float s) {
  if (is_nan(m)) return 7;
  return static_cast<std::uint8_t>((m > s * 0.25F) + (m >= s * 0.75F) + (m > s * 1.25F) + (m >= s * 1.75F) +
                                   (m > s * 2.5F) + (m >= s * 3.5F) + (m > s * 5.0F));
}

std::uint8_t quantize_w4a4_group(std::span<const float> x, float input_scale_inv, std::span<std::uint8_t> codes) {
  float max = 0;
  for (const float v : x) {
    const float m = abs_value(round_to_f16(v));
    if (m > max) max = m;  // false for NaN
  }
  const float sixth = bits_float(0x3E2AAAABU);
  const std::uint8_t scale = e4m3_encode(std::min((max * sixth) * input_scale_inv, kE4m3Max));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float h = round_to_f16(x[i]);
    const auto sign = static_cast<std::uint8_t>(sign_bit(h) >> 28);
    const std::uint8_t magnitude =
        scale == 0 ? std::uint8_t{0} : code_under_scale(abs_value(h) * input_scale_inv, e4m3_decode(scale));
    codes[i] = sign | magnitude;
  }
  return scale;
}

}  // namespace

A11 quantize_a11(std::span<const float> x) {
  A11 out{std::vector<std::int16_t>(x.size()), std::vector<float>((x.size() + kA11Block - 1) / kA11Block)};
  for (std::size_t b = 0; b < out.d.size(); ++b) {
    const std::size_t first = b * kA11Block;
    const std::size_t n = std::min<std::size_t>(kA11Block, x.size() - first);
    quantize_a11_block(x.subspan(first, n), std::span(out.q).subspan(first, n), out.d[b], out.finite);
  }
  return out;
}

A16Q8 quantize_a16q8(std::span<const float> x) {
  A16Q8 out{std::vector<std::int8_t>(x.size()), std::vector<float>((x.size() + kA16Q8Block - 1) / kA16Q8Block)};
  for (std::size_t b = 0; b < out.d.size(); ++b) {
    const std::size_t first = b * kA16Q8Block;
    const std::size_t n = std::min<std::size_t>(kA16Q8Block, x.size() - first);
    quantize_a16q8_block(x.subspan(first, n), std::span(out.q).subspan(first, n), out.d[b]);
  }
  return out;
}

W4A4 quantize_w4a4(std::span<const float> x, float input_scale_inv) {
  NIBBLE_CHECK(x.size() % kNvfp4Group == 0, "w4a4 takes whole groups of 16");
  W4A4 out{std::vector<std::uint8_t>(x.size()), std::vector<std::uint8_t>(x.size() / kNvfp4Group)};
  for (std::size_t g = 0; g < out.scales.size(); ++g) {
    out.scales[g] = quantize_w4a4_group(x.subspan(g * kNvfp4Group, kNvfp4Group), input_scale_inv,
                                        std::span(out.codes).subspan(g * kNvfp4Group, kNvfp4Group));
  }
  return out;
}

}  // namespace nibble::oracle
