#include "engine/divergence.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nibble::engine {
namespace {

TEST(Divergence, OfTwoKnownDistributions) {
  const std::vector<float> p = {std::log(0.5F), std::log(0.25F), std::log(0.25F)};
  const std::vector<float> q = {std::log(0.25F) + 3, std::log(0.5F) + 3,
                                std::log(0.25F) + 3};  // a shift changes nothing
  Divergence d;
  d.add(p, q, 0);
  d.add(p, p, 1);
  EXPECT_NEAR(d.max_kl(), 0.25 * std::log(2.0), 1e-7);  // inputs are f32
  EXPECT_NEAR(d.mean_kl(), 0.125 * std::log(2.0), 1e-7);
  EXPECT_EQ(d.kl_quantile(0), 0);
  EXPECT_EQ(d.top1_agreement(), 0.5);
  EXPECT_NEAR(d.reference_perplexity(), std::exp((std::log(2.0) + std::log(4.0)) / 2), 1e-6);
  EXPECT_NEAR(d.candidate_perplexity(), 4, 1e-6);
}

TEST(Divergence, KeepsItsDigitsWhenTheModelsAreNearlyEqual) {
  std::vector<float> p(1000);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = static_cast<float>(i % 7);
  std::vector<float> q = p;
  q[6] += 0x1p-20F;  // second order: about p (1-p) x^2 / 2, p = 1/1650
  Divergence d;
  d.add(p, q, -1);
  const double share = std::exp(6.0) / [&p] {
    double s = 0;
    for (float x : p) s += std::exp(x);
    return s;
  }();
  EXPECT_NEAR(d.mean_kl() / (share * (1 - share) * std::ldexp(1.0, -41)), 1.0, 1e-3);
}

}  // namespace
}  // namespace nibble::engine
