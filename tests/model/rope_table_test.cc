#include "model/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/sha256.h"

namespace nibble::model {
namespace {

TEST(RopeTable, ElementaryFunctionsAgreeWithLongDoubleLibm) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> angle(-1000000.0, 1000000.0);
  std::uniform_real_distribution<double> small(1e-6, 3.2);
  for (int i = 0; i < 200000; ++i) {
    const double x = i % 2 == 0 ? angle(random) : small(random);
    const SinCos got = portable_sin_cos(x);
    // Half an ulp of f64 plus the error of the reduction: far below what an f32 can tell (2^-25).
    ASSERT_NEAR(got.sin, static_cast<double>(sinl(x)), 4e-16) << x;
    ASSERT_NEAR(got.cos, static_cast<double>(cosl(x)), 4e-16) << x;
    const double y = std::abs(x) + 1e-3;
    ASSERT_NEAR(portable_log2(y) / static_cast<double>(log2l(y)), 1.0, 1e-13) << y;
    const double e = std::fmod(x, 300.0);
    ASSERT_NEAR(portable_exp2(e) / static_cast<double>(exp2l(e)), 1.0, 1e-15) << e;
  }
  EXPECT_EQ(portable_log2(8), 3.0);
  EXPECT_EQ(portable_exp2(-4), 0.0625);
}

TEST(RopeTable, PlainFrequencies) {
  const RopeConfig config = {.rotary_dim = 64, .freq_base = 1e5};
  const std::vector<float> table = make_rope_table(config, 100);
  ASSERT_EQ(table.size(), 100u * 32 * 2);
  for (int pos : {0, 1, 50, 99}) {
    for (int i : {0, 1, 17, 31}) {
      const long double theta = pos * powl(1e5L, -2.0L * i / 64);
      EXPECT_EQ(table[(pos * 32 + i) * 2], static_cast<float>(cosl(theta)));
      EXPECT_EQ(table[(pos * 32 + i) * 2 + 1], static_cast<float>(sinl(theta)));
    }
  }
}

TEST(RopeTable, LinearScalingAndFrequencyFactorsDivideTheFrequency) {
  const std::vector<float> plain = make_rope_table({.rotary_dim = 16}, 33);
  const std::vector<float> linear =
      make_rope_table({.rotary_dim = 16, .scaling = RopeScaling::kLinear, .factor = 4}, 129);
  const std::vector<float> factors =
      make_rope_table({.rotary_dim = 16, .freq_factors = std::vector<float>(8, 4.0F)}, 129);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(linear[128 * 16 + i], plain[32 * 16 + i]);
    EXPECT_EQ(factors[128 * 16 + i], plain[32 * 16 + i]);
  }
}

TEST(RopeTable, YarnKeepsFastPairsScalesSlowOnesAndGrows) {
  const RopeConfig yarn = {
      .rotary_dim = 128, .freq_base = 1e6, .scaling = RopeScaling::kYarn, .factor = 4, .original_context = 32768};
  const std::vector<float> table = make_rope_table(yarn, 2);
  const double magnitude = 0.1 * std::log(4.0) + 1;
  const auto pair_angle = [&](int i) { return std::atan2(table[128 + 2 * i + 1], table[128 + 2 * i]); };
  const auto plain_angle = [](int i) { return std::pow(1e6, -2.0 * i / 128); };
  EXPECT_NEAR(std::hypot(table[128], table[129]), magnitude, 1e-6);
  EXPECT_NEAR(pair_angle(0), plain_angle(0), 1e-6);                // 32 turns and more: as it was
  EXPECT_NEAR(pair_angle(63) / (plain_angle(63) / 4), 1.0, 1e-4);  // less than a turn: scaled
  const double middle = pair_angle(32) / plain_angle(32);          // between
  EXPECT_GT(middle, 0.26);
  EXPECT_LT(middle, 0.99);
}

TEST(RopeTable, IsTheSameOnEveryMachine) {
  const std::vector<float> table = make_rope_table({.rotary_dim = 64, .freq_base = 1e6}, 8192);
  EXPECT_EQ(sha256_hex(std::as_bytes(std::span(table))),
            "641450e7f241ae59b74b2151e1c4482bb204c8db8f7fc88a1d4610e8aefe0ec8");
}

}  // namespace
}  // namespace nibble::model
