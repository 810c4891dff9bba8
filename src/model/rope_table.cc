#include "model/rope_table.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace nibble::model {
namespace {

constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr double kTwoPi = 0x1.921fb54442d18p+2;

// One frequency and the factor on cos and sin.
struct Frequency {
  double value;
  double magnitude;
};

double portable_log(double x) {
  return portable_log2(x) * kLn2;
}

// The dimension whose wavelength makes `rotations` turns within the original context (YaRN, section 3.2).
double yarn_dimension(const RopeConfig& config, double rotations) {
  return config.rotary_dim * portable_log(config.original_context / (rotations * kTwoPi)) /
         (2 * portable_log(config.freq_base));
}

// Share of the unscaled frequency in pair i: 1 for fast pairs, 0 for slow ones, linear between.
double yarn_ramp(const RopeConfig& config, int i) {
  const double low = std::max(0.0, std::floor(yarn_dimension(config, config.beta_fast)));
  const double high = std::min(config.rotary_dim - 1.0, std::ceil(yarn_dimension(config, config.beta_slow)));
  const double y = (i - low) / std::max(0.001, high - low);
  return 1.0 - std::clamp(y, 0.0, 1.0);
}

Frequency frequency(const RopeConfig& config, int i) {
  const double exponent = -2.0 * i / config.rotary_dim;
  double value = portable_exp2(exponent * portable_log2(config.freq_base));
  if (!config.freq_factors.empty()) value /= config.freq_factors[i];
  switch (config.scaling) {
    case RopeScaling::kNone:
      return {value, config.attention_factor};
    case RopeScaling::kLinear:
      return {value / config.factor, config.attention_factor};
    case RopeScaling::kYarn: {
      const double mix = yarn_ramp(config, i);
      const double scaled = std::fma(value, mix, value / config.factor * (1 - mix));
      return {scaled, config.attention_factor * std::fma(0.1, portable_log(config.factor), 1.0)};
    }
  }
  return {value, 1};
}

}  // namespace

double portable_log2(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // [0.5, 1)
  if (m < 0x1.6a09e667f3bcdp-1) {       // sqrt(1/2)
    m *= 2;
    --exponent;
  }
  // ln m = 2 atanh(s), s = (m - 1) / (m + 1), |s| <= 0.172: the 14th term is below 2^-70.
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double series = 0;
  for (int k = 13; k >= 0; --k) series = std::fma(series, s2, 1.0 / (2 * k + 1));
  return std::fma(2 * s * series, 1 / kLn2, exponent);
}

double portable_exp2(double x) {
  const double n = std::nearbyint(x);
  const double y = (x - n) * kLn2;  // |y| <= 0.347: the 18th term is below 2^-75
  double series = 1;
  for (int k = 17; k >= 1; --k) series = std::fma(series * (1.0 / k), y, 1.0);
  return std::ldexp(series, static_cast<int>(n));
}

SinCos portable_sin_cos(double x) {
  // Cody-Waite with pi/2 in three parts: exact to far below an f32 ulp for |x| < 2^20.
  constexpr double kHalfPiHigh = 0x1.921fb54442d18p+0;
  constexpr double kHalfPiMiddle = 0x1.1a62633145c07p-54;
  constexpr double kHalfPiLow = -0x1.f1976b7ed8fbcp-110;
  const double k = std::nearbyint(x * 0x1.45f306dc9c883p-1);
  double r = std::fma(-k, kHalfPiHigh, x);
  r = std::fma(-k, kHalfPiMiddle, r);
  r = std::fma(-k, kHalfPiLow, r);
  const double r2 = r * r;
  double sin_series = 1;
  double cos_series = 1;
  for (int n = 10; n >= 1; --n) {  // |r| <= pi/4: the next terms are below 2^-75
    sin_series = std::fma(sin_series, -r2 / ((2.0 * n) * (2.0 * n + 1)), 1.0);
    cos_series = std::fma(cos_series, -r2 / ((2.0 * n - 1) * (2.0 * n)), 1.0);
  }
  const double sine = r * sin_series;
  switch (static_cast<long long>(k) & 3) {
    case 0:
      return {sine, cos_series};
    case 1:
      return {cos_series, -sine};
    case 2:
      return {-sine, -cos_series};
    default:
      return {-cos_series, sine};
  }
}

std::vector<float> make_rope_table(const RopeConfig& config, int n_positions) {
  NIBBLE_CHECK(config.rotary_dim > 0 && config.rotary_dim % 2 == 0, "rotary_dim must be even");
  const int n_pairs = config.rotary_dim / 2;
  NIBBLE_CHECK(config.freq_factors.empty() || config.freq_factors.size() == static_cast<std::size_t>(n_pairs),
               "one frequency factor per pair");
  std::vector<Frequency> frequencies;
  frequencies.reserve(n_pairs);
  for (int i = 0; i < n_pairs; ++i) frequencies.push_back(frequency(config, i));

  std::vector<float> table(static_cast<std::size_t>(n_positions) * n_pairs * 2);  // [n_positions, n_pairs, 2]
  float* out = table.data();
  for (int pos = 0; pos < n_positions; ++pos) {
    for (const Frequency& f : frequencies) {
      const SinCos pair = portable_sin_cos(pos * f.value);
      *out++ = static_cast<float>(pair.cos * f.magnitude);
      *out++ = static_cast<float>(pair.sin * f.magnitude);
    }
  }
  return table;
}

}  // namespace nibble::model
