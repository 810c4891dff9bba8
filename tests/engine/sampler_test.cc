#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "engine/philox.h"

namespace nibble::engine {
namespace {

TEST(Philox, ReproducesTheKnownAnswersOfItsAuthors) {  // kat_vectors of Random123
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Sampler, GreedyTakesTheLowestIdOfTheMaxima) {
  Sampler sampler({});
  const std::vector<float> logits = {1, 3, -2, 3, 0};
  EXPECT_EQ(sampler.sample(logits, {}, 0), 1);
}

std::vector<double> shares(SamplingParams params, const std::vector<float>& logits, int n = 20000) {
  Sampler sampler(params);
  std::vector<double> counts(logits.size());
  for (int pos = 0; pos < n; ++pos) counts[sampler.sample(logits, {}, pos)] += 1.0 / n;
  return counts;
}

TEST(Sampler, DrawsWithTheSoftmaxProbabilities) {
  const std::vector<float> logits = {0.5F, 2.0F, -1.0F, 1.0F};
  const float temperature = 0.7F;
  double total = 0;
  std::vector<double> expected;
  for (const float x : logits) total += expected.emplace_back(std::exp(x / temperature));
  const std::vector<double> got = shares({.temperature = temperature, .seed = 7}, logits);
  // Five standard deviations of a share over 20,000 draws are below 0.018.
  for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(got[i], expected[i] / total, 0.018) << i;
}

TEST(Sampler, TruncationsKeepWhatTheySay) {
  const std::vector<float> logits = {1.0F, 4.0F, 3.0F, 2.0F, -5.0F};  // shares .0310 .6433 .2366 .0870 .0001 (T = 1)
  const auto nonzero = [&](SamplingParams p) {
    p.temperature = 1;
    std::vector<int> ids;
    const auto got = shares(p, logits, 3000);
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (got[i] > 0) ids.push_back(static_cast<int>(i));
    }
    return ids;
  };
  EXPECT_EQ(nonzero({.top_k = 2}), (std::vector<int>{1, 2}));
  EXPECT_EQ(nonzero({.top_k = 1}), (std::vector<int>{1}));
  EXPECT_EQ(nonzero({.top_p = 0.64F}), (std::vector<int>{1}));
  EXPECT_EQ(nonzero({.top_p = 0.65F}), (std::vector<int>{1, 2}));
  EXPECT_EQ(nonzero({.min_p = 0.1F}), (std::vector<int>{1, 2, 3}));  // e^-2 = 0.135, e^-3 = 0.0498
}

TEST(Sampler, TiesAtTheEdgeOfTopKGoToTheLowestIds) {
  const std::vector<float> logits(100, 1.0F);
  Sampler sampler({.temperature = 1, .top_k = 3});
  for (int pos = 0; pos < 200; ++pos) EXPECT_LT(sampler.sample(logits, {}, pos), 3);
}

TEST(Sampler, DependsOnSeedPositionAndRequestOnly) {
  std::vector<float> logits(1000);
  std::iota(logits.begin(), logits.end(), 0.0F);
  for (float& x : logits) x = std::sin(x);
  const auto draws = [&](std::uint64_t seed, std::uint64_t request) {
    Sampler sampler({.temperature = 1, .seed = seed, .request = request});
    std::vector<std::int32_t> out;
    for (int pos = 99; pos >= 0; --pos) out.insert(out.begin(), sampler.sample(logits, {}, pos));
    return out;
  };
  EXPECT_EQ(draws(1, 0), draws(1, 0));
  EXPECT_NE(draws(1, 0), draws(2, 0));
  EXPECT_NE(draws(1, 0), draws(1, 1));
}

TEST(Sampler, PenaltiesAndBias) {
  const std::vector<float> logits = {2.0F, 1.9F, -0.1F};
  const std::vector<std::int32_t> history = {0};
  EXPECT_EQ(Sampler({.repetition_penalty = 1.1F}).sample(logits, history, 1), 1);
  EXPECT_EQ(Sampler({.presence_penalty = 0.2F}).sample(logits, history, 1), 1);
  EXPECT_EQ(Sampler({.presence_penalty = 0.2F, .penalty_window = 0}).sample(logits, history, 1), 0);
  EXPECT_EQ(Sampler({.logit_bias = {{2, 5.0F}}}).sample(logits, history, 1), 2);
  // A negative logit is multiplied: being seen never makes a token likelier.
  EXPECT_EQ(Sampler({.repetition_penalty = 2}).sample(std::vector<float>{-1.0F, -1.5F}, history, 1), 1);
}

TEST(Sampler, RefusesParametersOutOfRange) {
  EXPECT_TRUE(check_sampling_params({}, 10).ok());
  for (const SamplingParams& bad :
       {SamplingParams{.temperature = -1}, SamplingParams{.temperature = NAN}, SamplingParams{.top_k = -1},
        SamplingParams{.top_p = 0}, SamplingParams{.top_p = 1.5F}, SamplingParams{.min_p = 2},
        SamplingParams{.repetition_penalty = 0}, SamplingParams{.presence_penalty = INFINITY},
        SamplingParams{.penalty_window = -2}, SamplingParams{.logit_bias = {{10, 1.0F}}},
        SamplingParams{.logit_bias = {{0, NAN}}}}) {
    EXPECT_FALSE(check_sampling_params(bad, 10).ok());
  }
}

}  // namespace
}  // namespace nibble::engine
