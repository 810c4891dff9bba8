// What a row of timings says, and how far it can be trusted.
#pragma once

#include <cstddef>
#include <span>

namespace nibble::measure {

double median(std::span<const double> samples);  // of an even number the mean of the middle two; 0 of none
double mean(std::span<const double> samples);
double population_cv(std::span<const double> samples);  // standard deviation (of these samples, 1/n) over their mean

struct Ratio {
  double value = 0;
  double low = 0;  // 95 % interval
  double high = 0;
  bool excludes_one() const { return low > 1 || high < 1; }
};

constexpr std::size_t kMinPairs = 5;
constexpr int kResamples = 10000;

// median(numerator) / median(denominator). Sample i of one was taken next to sample i of the other, so the bootstrap
// draws pairs: 10,000 resamples from a fixed seed, percentiles 2.5 and 97.5. Equally many of both, at least one.
Ratio ratio_of_medians(std::span<const double> numerator, std::span<const double> denominator);

}  // namespace nibble::measure
