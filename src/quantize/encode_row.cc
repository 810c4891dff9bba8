#include "quantize/encode_row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "format/e4m3.h"
#include "format/half.h"
#include "format/nc1.h"

namespace nibble {
namespace {

constexpr std::size_t kQ8Block = 32;
constexpr std::size_t kQ8Bytes = 34;

template <std::uint16_t (*kConvert)(float), std::uint16_t kInfinity>
std::optional<std::size_t> encode_16(std::span<const float> row, std::byte* out) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::uint16_t bits = kConvert(row[i]);
    if ((bits & kInfinity) == kInfinity) return i;
    std::memcpy(out + 2 * i, &bits, sizeof bits);
  }
  return std::nullopt;
}

std::uint16_t to_f16(float x) {
  return format::f32_to_f16(x);
}

std::uint16_t to_bf16(float x) {
  return format::f32_to_bf16(x);
}

std::optional<std::size_t> encode_f32(std::span<const float> row, std::byte* out) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (format::is_nonfinite(row[i])) return i;
  }
  std::memcpy(out, row.data(), row.size_bytes());
  return std::nullopt;
}

// ggml's rule: d = amax / 127, integers by the reciprocal of the f32 d, halves away from zero; d is stored as f16.
std::optional<std::size_t> encode_q8_0(std::span<const float> row, std::byte* out) {
  for (std::size_t block = 0; block < row.size() / kQ8Block; ++block, out += kQ8Bytes) {
    const std::span<const float> values = row.subspan(block * kQ8Block, kQ8Block);
    std::uint32_t amax = 0;
    for (float value : values) amax = std::max(amax, format::abs_bits(value));
    const float d = format::bits_float(amax) / 127.0F;
    const std::uint16_t scale = format::f32_to_f16(d);
    if ((scale & 0x7C00) == 0x7C00) {
      const auto largest =
          std::find_if(values.begin(), values.end(), [&](float v) { return format::abs_bits(v) == amax; });
      return block * kQ8Block + static_cast<std::size_t>(largest - values.begin());
    }
    const float inverse = d == 0 ? 0.0F : 1.0F / d;
    std::memcpy(out, &scale, sizeof scale);
    for (std::size_t i = 0; i < kQ8Block; ++i) {
      out[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(std::round(values[i] * inverse)));
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::size_t> encode_row(DType dtype, std::span<const float> row, std::span<std::byte> out) {
  NIBBLE_CHECK(out.size() == bytes_of(dtype, row.size()), "a row and its bytes of different sizes");
  switch (dtype) {
    case DType::kF32:
      return encode_f32(row, out.data());
    case DType::kF16:
      return encode_16<to_f16, 0x7C00>(row, out.data());
    case DType::kBF16:
      return encode_16<to_bf16, 0x7F80>(row, out.data());
    case DType::kQ8_0:
      return encode_q8_0(row, out.data());
    default:
      NIBBLE_CHECK(false, "a type that rows are not encoded to");
  }
  return std::nullopt;
}

std::optional<float> encode_fp8_row(std::span<const float> row, std::span<std::uint8_t> codes) {
  NIBBLE_CHECK(codes.size() == row.size(), "a row and its codes of different sizes");
  std::uint32_t amax = 0;
  for (float value : row) amax = std::max(amax, format::abs_bits(value));
  const float largest = format::bits_float(amax);
  if (!(largest <= format::kE4m3Max * format::nc1::kTensorScaleMax)) return std::nullopt;
  // A row below the smallest scale keeps what that resolves.
  const float scale = largest == 0 ? 1.0F : std::max(largest / format::kE4m3Max, format::nc1::kTensorScaleMin);
  for (std::size_t i = 0; i < row.size(); ++i) codes[i] = format::e4m3_encode(row[i] / scale);
  return scale;
}

}  // namespace nibble
