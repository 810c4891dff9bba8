#include "measure/divergence.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nibble::measure {
namespace {

TEST(Divergence, OfTwoKnownDistributions) {
  const std::vector<float> p = {std::log(0.5F), std::log(0.25F), std::log(0.25F)};
  const std::vector<float> q = {std::log(0.25F) + 3, std::log(0.5F) + 3,
                                std::log(0.25F) + 3};  // a shift changes nothing but the drift
  const std::vector<PositionDivergence> positions = {diverge(p, q, 0), diverge(p, p, 1), diverge(p, p, -1)};
  const DivergenceSummary s = summarize(positions);
  EXPECT_EQ(s.positions, 3u);
  EXPECT_EQ(s.scored, 2u);
  EXPECT_NEAR(s.max_kl, 0.25 * std::log(2.0), 1e-7);  // inputs are f32
  EXPECT_NEAR(s.mean_kl, 0.25 * std::log(2.0) / 3, 1e-7);
  EXPECT_EQ(s.p99_kl, 0);  // floor(0.99 * 2) = 1: the middle one
  EXPECT_EQ(s.top1_agreement, 2.0 / 3);
  EXPECT_NEAR(s.reference_perplexity, std::exp((std::log(2.0) + std::log(4.0)) / 2), 1e-6);
  EXPECT_NEAR(s.candidate_perplexity, 4, 1e-6);
  EXPECT_NEAR(s.max_drift, 3 + std::log(2.0), 1e-6);
  EXPECT_NEAR(s.mean_drift, 1, 1e-6);  // (3 - ln 2 + 3 + ln 2 + 3) / 9
  EXPECT_NEAR(negative_log_likelihood(q, 1), std::log(2.0), 1e-6);
}

TEST(Divergence, KeepsItsDigitsWhenTheModelsAreNearlyEqual) {
  std::vector<float> p(1000);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = static_cast<float>(i % 7);
  std::vector<float> q = p;
  q[6] += 0x1p-20F;  // second order: about p (1-p) x^2 / 2, p = 1/1650
  const double share = std::exp(6.0) / [&p] {
    double s = 0;
    for (float x : p) s += std::exp(x);
    return s;
  }();
  EXPECT_NEAR(diverge(p, q, -1).kl / (share * (1 - share) * std::ldexp(1.0, -41)), 1.0, 1e-3);
}

TEST(Divergence, OfNothingIsNothing) {
  const DivergenceSummary s = summarize({});
  EXPECT_EQ(s.positions, 0u);
  EXPECT_EQ(s.mean_kl, 0);
}

}  // namespace
}  // namespace nibble::measure
