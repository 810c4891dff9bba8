#include "oracle/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "format/contract_math.h"
#include "tests/oracle/golden_inputs.h"

namespace nibble::oracle {
namespace {

// Known answers that come with the paper's reference implementation (Random123, kat_vectors).
TEST(Philox, KnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), Words({0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}), Words({0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            Words({0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Weight, IsTheFlooredPower) {
  EXPECT_EQ(fixed_point_weight(0, 1.5F), std::uint64_t{1} << 40);
  EXPECT_EQ(fixed_point_weight(-1, 1.0F), std::uint64_t{1} << 39);
  EXPECT_EQ(fixed_point_weight(-40, 1.0F), 1u);
  EXPECT_EQ(fixed_point_weight(-41, 1.0F), 0u);
  EXPECT_EQ(fixed_point_weight(-1e30F, 1.0F), 0u);
  EXPECT_EQ(fixed_point_weight(-std::numeric_limits<float>::infinity(), 1.0F), 0u);
  for (float x = 0; x > -30; x -= 0.0137F) {
    const double truth = std::exp2(double{x} * format::kLog2E + 40);
    ASSERT_NEAR(static_cast<double>(fixed_point_weight(x, format::kLog2E)), truth, truth * 4e-7 + 1) << x;
  }
}

TEST(Select, GreedyTakesTheLowestIdOfTheMaxima) {
  const std::vector<float> logits = {1, 3, 2, 3};
  EXPECT_EQ(select_token({.temperature = 0}, logits, ~std::uint64_t{0}), 1);
}

TEST(Select, TopKTiesGoToTheLowestId) {
  const std::vector<float> logits = {0, 1, 1, 1};
  for (std::uint64_t i = 0; i < 64; ++i) EXPECT_EQ(select_token({.top_k = 1}, logits, token_noise(1, i, 0)), 1);
}

TEST(Select, FrequenciesFollowTheSoftmax) {
  const std::vector<float> logits = {0, 1, 2, -1};
  std::vector<int> counts(4);
  const int n = 200000;
  for (int i = 0; i < n; ++i) ++counts[select_token({.temperature = 0.7F}, logits, token_noise(3, i, 9))];
  double sum = 0;
  for (const float x : logits) sum += std::exp(x / 0.7);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(counts[i] / double{n}, std::exp(logits[i] / 0.7) / sum, 0.004) << i;
}

TEST(Select, EndsOfTheNoiseAreTheFirstAndLastCandidate) {
  const std::vector<float> logits = {0.5F, 0.25F, 0.125F};
  EXPECT_EQ(select_token({}, logits, 0), 0);
  EXPECT_EQ(select_token({}, logits, ~std::uint64_t{0}), 2);
}

TEST(Select, TopPAndMinPKeepWhatTheySay) {
  // Weights 2^40, 2^39, 2^38, 2^37 at a temperature of log2(e).
  const std::vector<float> logits = {0, -1, -2, -3};
  const float t = format::kLog2E;
  const auto last_kept = [&](SamplingParameters p) {
    p.temperature = t;
    return select_token(p, logits, ~std::uint64_t{0});
  };
  EXPECT_EQ(last_kept({}), 3);
  EXPECT_EQ(last_kept({.top_p = 0.5F}), 0);   // 8/15 alone passes
  EXPECT_EQ(last_kept({.top_p = 0.54F}), 1);  // 8/15 = 0.533 does not
  EXPECT_EQ(last_kept({.top_p = 0.9F}), 2);
  EXPECT_EQ(last_kept({.top_p = 0}), 0);  // one is always kept
  EXPECT_EQ(last_kept({.min_p = 0.25F}), 2);
  EXPECT_EQ(last_kept({.min_p = 0.26F}), 1);
  EXPECT_EQ(last_kept({.min_p = 1}), 0);
}

TEST(Penalties, InTheOrderWritten) {
  std::vector<float> logits = {2, -2, 5, 1};
  const std::vector<std::int32_t> context = {0, 0, 1};
  SamplingParameters p{.repetition_penalty = 2, .presence_penalty = 0.5F};
  p.logit_bias = {{0, 10}, {3, -std::numeric_limits<float>::infinity()}};
  apply_penalties(p, context, logits);
  EXPECT_EQ(logits[0], 10.5F);
  EXPECT_EQ(logits[1], -4.5F);
  EXPECT_EQ(logits[2], 5);
  EXPECT_TRUE(std::isinf(logits[3]));
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_NE(select_token({}, logits, token_noise(0, i, 0)), 3);
}

}  // namespace
}  // namespace nibble::oracle
