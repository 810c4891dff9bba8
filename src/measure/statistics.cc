#include "measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/check.h"

namespace nibble::measure {

double median(std::span<const double> samples) {
  if (samples.empty()) return 0;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  const std::size_t n = sorted.size();
  return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double mean(std::span<const double> samples) {
  double sum = 0;
  for (const double x : samples) sum += x;
  return samples.empty() ? 0 : sum / static_cast<double>(samples.size());
}

double population_cv(std::span<const double> samples) {
  const double center = mean(samples);
  double squares = 0;
  for (const double x : samples) squares += (x - center) * (x - center);
  return center == 0 ? 0 : std::sqrt(squares / static_cast<double>(samples.size())) / center;
}

Ratio ratio_of_medians(std::span<const double> numerator, std::span<const double> denominator) {
  const std::size_t n = numerator.size();
  NIBBLE_CHECK(n == denominator.size() && n > 0, "pairs of samples");
  std::mt19937_64 random(20251130);  // the engine is defined by the standard, its distributions are not
  std::vector<double> a(n), b(n), ratios(kResamples);
  for (double& ratio : ratios) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t pick = random() % n;
      a[i] = numerator[pick];
      b[i] = denominator[pick];
    }
    ratio = median(a) / median(b);
  }
  std::ranges::sort(ratios);
  const auto percentile = [&ratios](double p) {
    return ratios[static_cast<std::size_t>(p * static_cast<double>(ratios.size() - 1))];
  };
  return {median(numerator) / median(denominator), percentile(0.025), percentile(0.975)};
}

}  // namespace nibble::measure
