#include "oracle/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "format/contract_math.h"
#include "format/e4m3.h"
#include "format/nvfp4.h"
#include "oracle/certificate.h"
#include "oracle/reduce.h"
#include "tests/oracle/golden_inputs.h"

namespace nibble::oracle {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(A11, KeepsElevenBitsOfTheLargestAndSnapsTinyBlocks) {
  std::vector<float> x(130, 0.0F);
  x[0] = -2.0F;
  x[1] = 1.0F;
  x[64] = std::nextafter(0x1p-40F, 0.0F);
  x[128] = 0x1p-40F;
  const A11 a = quantize_a11(x);
  ASSERT_EQ(a.d.size(), 3u);
  EXPECT_EQ(a.q[0], -1023);
  EXPECT_EQ(a.q[1], 512);  // 511.5 to even
  EXPECT_EQ(a.d[0], 2.0F / 1023.0F);
  EXPECT_EQ(a.q[64], 0);
  EXPECT_EQ(a.d[1], 0);
  EXPECT_EQ(a.q[128], 1023);
  EXPECT_TRUE(a.finite);
}

TEST(A11, ErrorOfEveryElementIsAtMostHalfAStep) {
  const std::vector<float> x = golden::activations(1, 4864);
  const A11 a = quantize_a11(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double step = a.d[i / 64];
    ASSERT_LE(std::abs(a.q[i] * step - x[i]), step * 0.501) << i;
    ASSERT_LE(std::abs(a.q[i]), kA11Max);
  }
}

TEST(A11, MagnitudesStayWithinTheBoundForEveryMaximum) {
  for (std::uint32_t bits = 0x2B800000u; bits < 0x7F800000u; bits += 65537) {  // from 2^-40 to the largest float
    const std::vector<float> x = {format::bits_float(bits)};
    const A11 a = quantize_a11(x);
    ASSERT_EQ(a.q[0], kA11Max) << x[0];
  }
}

TEST(A11, NonFiniteIsNoticedAndNeverBecomesFinite) {
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(96, 1.0F);
    x[70] = bad;
    const A11 a = quantize_a11(x);
    EXPECT_FALSE(a.finite);
    const golden::Nvfp4Matrix w = golden::nvfp4_matrix(1, 1, 96);
    EXPECT_TRUE(std::isnan(dot_nvfp4_a11(w.row(0), a)));
  }
}

TEST(DotNvfp4, IsCloseToTheFloatDot) {
  const std::size_t n = 1104;
  const golden::Nvfp4Matrix w = golden::nvfp4_matrix(21, 8, n);
  const std::vector<float> x = golden::activations(22, n);
  for (std::size_t row = 0; row < 8; ++row) {
    double exact = 0;
    double norm = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double weight = format::nvfp4_dequantize(format::nvfp4_code(w.row(row).codes[i / 2], static_cast<int>(i)),
                                                     w.row(row).scales[i / 16], w.tensor_scale);
      exact += weight * x[i];
      norm += weight * x[i] * weight * x[i];
    }
    EXPECT_NEAR(dot_nvfp4_a11(w.row(row), quantize_a11(x)), exact, std::sqrt(norm) * 0.02) << row;
    EXPECT_NEAR(dot_nvfp4_float(w.row(row), x), exact, std::sqrt(norm) * 1e-5) << row;
  }
}

// 15 bits hold every f16 and bf16 whose exponent is near that of the block's largest: then the row is exact.
TEST(Dot16Bit, RowsOfOneExponentAreExact) {
  std::vector<float> w(64);
  for (int i = 0; i < 64; ++i) w[i] = static_cast<float>(1024 + 15 * i) * (i % 2 ? 0x1p-9F : -0x1p-9F);
  const IntegerRow row = make_integer_row(w);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(std::ldexp(row.q[i], row.unit[0]), w[i]);
}

TEST(Dot16Bit, UnitIsTheSmallestThatFits) {
  const auto unit = [](float max) { return make_integer_row(std::vector<float>{max}).unit[0]; };
  EXPECT_EQ(unit(16383.0F), 0);
  EXPECT_EQ(unit(16383.5F), 1);  // would round to 16384
  EXPECT_EQ(unit(1.0F), -13);
  EXPECT_EQ(unit(0.0F), -52);
  EXPECT_EQ(unit(0x1p-60F), -52);
  EXPECT_EQ(unit(0x1.fep127F), 114);
}

// Sums written out: 64 * 448 at the bound of S, an odd sum that f32 has to round, and a second block of its own scale.
TEST(DotFp8, IsTheExactSumRoundedOnce) {
  const std::vector<float> x(67, 3.0F);  // q = 1023, d = 3 / 1023
  const float d = 3.0F / 1023.0F;
  std::vector<std::uint8_t> codes(67, 0x7E);
  codes[0] = 0x01;   // 2^-9, so that S = 1023 * (63 * 229376 + 1) is odd
  codes[64] = 0xC4;  // -3
  codes[65] = 0x00;
  codes[66] = 0x80;
  const Fp8Row row{codes, {0.7F, 0.3F}};
  const auto first = static_cast<float>(std::int64_t{1023} * (std::int64_t{63} * 229376 + 1));
  const float second = -3.0F * 512 * 1023;
  float acc = std::fma(first, d * (0.7F * 0x1p-9F), 0.0F);
  acc = std::fma(second, d * (0.3F * 0x1p-9F), acc);
  EXPECT_EQ(dot_fp8_a11(row, quantize_a11(x)), acc);
  EXPECT_NEAR(acc, 3 * (0.7 * (63 * 448 + 0x1p-9) - 0.3 * 3), 1e-2);
}

// f32(S) may not be the sum of two rounded parts: S = 2^33 + 2^9 + 1 lies just above the middle of two floats.
TEST(DotFp8, SumsAreNotRoundedTwice) {
  std::vector<float> x(64, 0.0F);
  std::vector<std::uint8_t> codes(64, 0);
  std::int64_t left = (std::int64_t{1} << 33) + 513;
  x[63] = 1023;
  for (int i = 0; i < 63 && left > 0; ++i) {
    const std::int64_t weight = left >= 229376 ? 229376 : std::int64_t{1} << (63 - __builtin_clzll(left));
    const std::int64_t q = std::min<std::int64_t>(left / weight, 1023);
    for (int byte = 0; byte < 0x7F; ++byte) {
      if (format::e4m3_x512(byte) == weight) codes[i] = static_cast<std::uint8_t>(byte);
    }
    x[i] = static_cast<float>(q);
    left -= weight * q;
  }
  ASSERT_EQ(left, 0);
  EXPECT_EQ(dot_fp8_a11({codes, {512.0F}}, quantize_a11(x)), 0x1p33F + 0x1p10F);
}

TEST(Certificate, BoundsTheSumInUnitsOfTheCommonPowerOfTwo) {
  golden::Nvfp4Matrix w = golden::nvfp4_matrix(5, 1, 64);
  std::ranges::fill(w.codes, 0x77);                              // 6 = 12 halves
  std::ranges::fill(w.scales, 0x38);                             // 1 = 512 units
  EXPECT_EQ(certificate_bound(w.row(0), 0, 64), 1023 * 64 * 3);  // 12 * 512 = 3 * 2^11
  w.scales[0] = 0x01;                                            // one group in single units
  EXPECT_EQ(certificate_bound(w.row(0), 0, 64), 1023 * (16 * 12 + 48 * 12 * 512) / 4);
  std::ranges::fill(w.codes, 0x80);
  EXPECT_EQ(certificate_bound(w.row(0), 0, 64), 0);
}

// Where the certificate holds, f32 additions in any order are exact; where it does not, they need not be.
TEST(Certificate, HoldsForSumsInF32) {
  int certified = 0;
  int inexact = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const golden::Nvfp4Matrix w = golden::nvfp4_matrix(seed * 2, 2, 64);
    const A11 a = quantize_a11(golden::activations(seed, 64));
    for (std::size_t row = 0; row < 2; ++row) {
      float sum = 0;
      for (int i = 63; i >= 0; --i) {
        const int q1 = format::e2m1_x2(format::nvfp4_code(w.row(row).codes[i / 2], i));
        sum += static_cast<float>(format::e4m3_x512(w.row(row).scales[i / 16]) * q1) * static_cast<float>(a.q[i]);
      }
      const std::int64_t exact = nvfp4_block_sum(w.row(row), 0, a.q);
      const bool equal = static_cast<double>(sum) == static_cast<double>(exact);
      if (certificate_bound(w.row(row), 0, 64) < kCertificateLimit) {
        ++certified;
        EXPECT_TRUE(equal) << seed;
      } else if (!equal) {
        ++inexact;
      }
    }
  }
  EXPECT_GT(certified, 300);
  EXPECT_GT(inexact, 50);  // the check bites
}

TEST(Reduction, IsTheWrittenTree) {
  const std::vector<float> x = golden::activations(31, 700);
  std::vector<float> lanes(256, 0.0F);
  for (std::size_t i = 0; i < x.size(); ++i) lanes[i % 256] = std::fma(x[i], x[i], lanes[i % 256]);
  while (lanes.size() > 1) {
    const std::size_t half = lanes.size() / 2;
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    lanes.resize(half);
  }
  EXPECT_EQ(reduce_products(x, x), lanes[0]);
  EXPECT_EQ(reduce_products(std::vector<float>(300, 1.0F), std::vector<float>(300, 1.0F)), 300.0F);
}

}  // namespace
}  // namespace nibble::oracle
