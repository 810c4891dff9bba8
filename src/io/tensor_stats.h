// What `nibble inspect --tensor` shows of one tensor: how its codes and scales are used, and its first values.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "io/checkpoint.h"

namespace nibble {

struct Nvfp4Stats {
  std::array<std::uint64_t, 16> codes = {};            // how often each E2M1 code occurs
  std::array<std::uint64_t, 16> scale_exponents = {};  // groups by the exponent field of their scale
  std::uint64_t zero_scales = 0;
  std::uint64_t negative_scales = 0;
};

struct FloatStats {
  float min = 0;
  float max = 0;
  double mean = 0;
  double rms = 0;
};

Nvfp4Stats nvfp4_stats(const Nvfp4View& weights);
// Over the decoded values of any tensor that can be dequantized.
Result<FloatStats> float_stats(const WeightView& weights);
// The first values of row 0, at most n.
Result<std::vector<float>> first_values(const WeightView& weights, std::size_t n);

}  // namespace nibble
