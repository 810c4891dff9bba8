#include "format/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace nibble::format {
namespace {

static_assert(f16_to_f32(0x3C00) == 1.0f && f32_to_f16(1.0f) == 0x3C00);
static_assert(bf16_to_f32(0x3F80) == 1.0f && f32_to_bf16(1.0f) == 0x3F80);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

double f16_by_formula(int half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1 + mantissa / 1024.0, exponent - 15);
  return half < 0x8000 ? magnitude : -magnitude;
}

TEST(F16, EveryValueDecodesByTheFormulaAndComesBack) {
  for (int half = 0; half < 0x10000; ++half) {
    const float x = f16_to_f32(half);
    if (((half >> 10) & 31) == 31) {
      EXPECT_EQ(std::isinf(x), (half & 1023) == 0) << half;
      EXPECT_EQ(std::isnan(x), (half & 1023) != 0) << half;
      EXPECT_EQ(std::signbit(x), half >= 0x8000);
      EXPECT_EQ(f32_to_f16(x), std::isinf(x) ? half : (half & 0x8000) | 0x7E00);
      continue;
    }
    ASSERT_EQ(x, f16_by_formula(half)) << half;
    ASSERT_EQ(std::signbit(x), half >= 0x8000) << half;
    ASSERT_EQ(f32_to_f16(x), half);
  }
}

TEST(F16, RoundsToNearestEvenAtEveryMidpointAndItsNeighbours) {
  for (int half = 0; half < 0x7BFF; ++half) {
    const float middle = static_cast<float>((f16_by_formula(half) + f16_by_formula(half + 1)) / 2);
    ASSERT_EQ(f32_to_f16(middle), (half & 1) == 0 ? half : half + 1) << half;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), half);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, kInfinity)), half + 1);
    ASSERT_EQ(f32_to_f16(-middle), ((half & 1) == 0 ? half : half + 1) | 0x8000);
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xFC00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::quiet_NaN()), 0x7E00);
  EXPECT_EQ(f32_to_f16(0x1p-149f), 0);
}

TEST(Bf16, EveryValueComesBackAndMidpointsGoToEven) {
  for (std::uint32_t b = 0; b < 0x10000; ++b) {
    const float x = bf16_to_f32(b);
    ASSERT_EQ(float_bits(x), b << 16);
    if (std::isnan(x)) {
      EXPECT_EQ(f32_to_bf16(x), 0x7FC0u | (b & 0x8000u));
      continue;
    }
    ASSERT_EQ(f32_to_bf16(x), b);
    if (std::isinf(x)) continue;
    ASSERT_EQ(f32_to_bf16(bits_float((b << 16) | 0x7FFFu)), b);
    ASSERT_EQ(f32_to_bf16(bits_float((b << 16) | 0x8000u)), (b & 1) == 0 ? b : b + 1);
    ASSERT_EQ(f32_to_bf16(bits_float((b << 16) | 0x8001u)), b + 1);
  }
}

}  // namespace
}  // namespace nibble::format
