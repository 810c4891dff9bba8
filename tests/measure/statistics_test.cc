#include "measure/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace nibble::measure {
namespace {

TEST(Statistics, MedianMeanAndPopulationCv) {
  const std::vector<double> samples = {4, 2, 8, 2};
  EXPECT_EQ(median(samples), 3);
  EXPECT_EQ(median(std::vector<double>{7, 1, 5}), 5);
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(mean(samples), 4);
  EXPECT_DOUBLE_EQ(population_cv(samples), std::sqrt(6.0) / 4);  // (0 + 4 + 16 + 4) / 4
}

TEST(Statistics, RatioOfEqualSamplesIsOne) {
  const std::vector<double> a = {1, 2, 3, 4, 5};
  const Ratio ratio = ratio_of_medians(a, a);
  EXPECT_EQ(ratio.value, 1);
  EXPECT_EQ(ratio.low, 1);  // pairs are drawn, so the noise that both share is gone
  EXPECT_EQ(ratio.high, 1);
  EXPECT_FALSE(ratio.excludes_one());
}

TEST(Statistics, IntervalTellsADifferenceFromNoise) {
  const std::vector<double> base = {1.00, 1.02, 0.99, 1.01, 1.00, 0.98, 1.03};
  std::vector<double> slower = base, noisy = base;
  for (double& x : slower) x *= 1.2;
  for (std::size_t i = 0; i < noisy.size(); ++i) noisy[i] *= i % 2 == 0 ? 1.1 : 0.9;
  const Ratio clear = ratio_of_medians(slower, base);
  EXPECT_NEAR(clear.value, 1.2, 1e-12);
  EXPECT_TRUE(clear.excludes_one());
  EXPECT_GT(clear.low, 1.1);
  const Ratio unclear = ratio_of_medians(noisy, base);
  EXPECT_LT(unclear.low, 1);
  EXPECT_GT(unclear.high, 1);
  EXPECT_FALSE(unclear.excludes_one());
}

TEST(Statistics, TheIntervalIsTheSameEveryTime) {
  const std::vector<double> a = {3, 1, 4, 1, 5, 9}, b = {2, 7, 1, 8, 2, 8};
  const Ratio first = ratio_of_medians(a, b), second = ratio_of_medians(a, b);
  EXPECT_EQ(first.low, second.low);
  EXPECT_EQ(first.high, second.high);
}

}  // namespace
}  // namespace nibble::measure
