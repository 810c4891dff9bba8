#include "format/contract_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/sha256.h"

namespace nibble::format {
namespace {

static_assert(pow2(-126) == 0x1p-126f && pow2(127) == 0x1p127f && scale_by_pow2(1.25f, -40) == 0x1.4p-40f);
static_assert(is_nonfinite(bits_float(0x7F800000u)) && is_nonfinite(bits_float(0xFFC00001u)) && !is_nonfinite(1e38f));

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Calls f with floats of both signs from 0 to `limit`, `stride` bit patterns apart.
template <typename F>
void for_floats(float limit, std::uint32_t stride, F f) {
  for (std::uint32_t bits = 0; bits <= float_bits(limit); bits += stride) {
    f(bits_float(bits));
    f(bits_float(bits | 0x80000000u));
  }
}

TEST(Rne, IsTheNearestIntegerOfTheExactProduct) {
  EXPECT_EQ(rne(0.5f, 1), 0);
  EXPECT_EQ(rne(1.5f, 1), 2);
  EXPECT_EQ(rne(-0.5f, 1), 0);
  EXPECT_EQ(rne(-1.5f, 1), -2);
  EXPECT_EQ(rne(2.5f, 1), 2);
  std::uint32_t state = 1;
  for (int i = 0; i < 2000000; ++i) {
    state = state * 1664525u + 1013904223u;
    const float x = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
    state = state * 1664525u + 1013904223u;
    const float s = static_cast<float>(state >> 9) * 0x1p-2f;  // |x * s| below 2^21
    ASSERT_EQ(rne(x, s), std::nearbyint(double{x} * double{s})) << x << ' ' << s;
  }
}

TEST(Exp2, PolynomialKeepsItsStatedError) {
  EXPECT_EQ(exp2_poly(0.0f), 1.0f);
  double worst = 0;
  for_floats(0.5f, 97, [&](float f) { worst = std::max(worst, std::abs(exp2_poly(f) / std::exp2(double{f}) - 1)); });
  EXPECT_LT(worst, 0x1p-22);
  EXPECT_LT(worst, std::exp2(-22.60));
}

TEST(Exp2, StaysNormalOverItsWholeRange) {
  EXPECT_EQ(exp2_scaled(-126.0f, 1.0f), 0x1p-126f);
  EXPECT_EQ(exp2_scaled(126.0f, 1.0f), 0x1p126f);
  for (int n = -126; n <= 126; ++n) EXPECT_EQ(exp2_scaled(static_cast<float>(n), 1.0f), pow2(n)) << n;
  EXPECT_TRUE(std::isnan(exp2_scaled(kNan, 1.0f)));
}

TEST(ActivationFunctions, AreCloseToTheTruth) {
  const auto near = [](double found, double truth) {
    return std::abs(found - truth) <= 1.5e-6 * std::abs(truth) + 1e-30;
  };
  for_floats(86.0f, 997, [&](float x) {
    const double s = 1 / (1 + std::exp(-double{x}));
    ASSERT_TRUE(near(sigmoid(x), s)) << x;
    ASSERT_TRUE(near(silu(x), x * s)) << x;
  });
  for_floats(20.0f, 997, [&](float x) {
    const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(double{x}, 3));
    ASSERT_NEAR(gelu_tanh(x), x / (1 + std::exp(-2 * u)), 4e-7 * std::max(1.0f, std::abs(x))) << x;
  });
}

TEST(ActivationFunctions, AtTheEnds) {
  EXPECT_EQ(sigmoid(0.0f), 0.5f);
  EXPECT_EQ(sigmoid(1e30f), 1.0f);
  EXPECT_GT(sigmoid(-1e30f), 0.0f);
  EXPECT_EQ(silu(1e30f), 1e30f);
  EXPECT_EQ(silu(kInfinity), kInfinity);
  EXPECT_EQ(gelu_tanh(1e30f), 1e30f);
  EXPECT_LT(std::abs(gelu_tanh(-100.0f)), 1e-30f);
  for (const float x : {kNan, -kNan}) {
    EXPECT_TRUE(std::isnan(sigmoid(x)));
    EXPECT_TRUE(std::isnan(silu(x)));
    EXPECT_TRUE(std::isnan(gelu_tanh(x)));
  }
}

// What another compiler or another machine must give, bit for bit.
TEST(ContractMath, GoldenDigests) {
  const auto digest = [](float (*f)(float), float limit) {
    std::vector<float> values;
    for_floats(limit, 9973, [&](float x) { values.push_back(f(x)); });
    return sha256_hex(std::as_bytes(std::span(values)));
  };
  EXPECT_EQ(digest(exp2_poly, 0.5f), "29a80d2eb150468591db600c288f18ef0fd72539b81f46cc8878a8379ccf1301");
  EXPECT_EQ(digest(sigmoid, 3e38f), "7b67d4a48726c165da7be2cb39c1292660b6f2c3d2dab2fa062b2f7f1ad12143");
  EXPECT_EQ(digest(silu, 3e38f), "918de55e336e3d5ddaec7277109032c99e51011f579c17f855e759d62d6e5031");
  EXPECT_EQ(digest(gelu_tanh, 3e38f), "d76dc03c864da09403d25224285f075d3adc00c8de11670dbebf6c4509e332d4");
}

}  // namespace
}  // namespace nibble::format
