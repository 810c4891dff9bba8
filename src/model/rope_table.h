// The (cos, sin) table of rotary embeddings, made on the host in f64 by nibble's own routines, so that every machine
// has the same f32 pairs (docs/contract.md, section 8). libm is not used: its results differ between systems.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nibble::model {

enum class RopeScaling { kNone, kLinear, kYarn };

struct RopeConfig {
  int rotary_dim = 0;  // even; the leading dimensions of a head that are rotated
  double freq_base = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;  // context extension of kLinear and kYarn
  // YaRN (Peng et al. 2023, arXiv 2309.00071)
  int original_context = 0;
  double beta_fast = 32;
  double beta_slow = 1;
  double attention_factor = 1;           // multiplies cos and sin, beside YaRN's own 0.1 ln(factor) + 1
  std::vector<float> freq_factors = {};  // [rotary_dim / 2] or empty: divisors of the frequencies (Llama 3's scheme)
};

// [n_positions, rotary_dim / 2, 2]: cos, sin of position * frequency i.
std::vector<float> make_rope_table(const RopeConfig& config, int n_positions);

// The f64 routines, for the tests. Arguments: |x| < 2^20 for sin_cos, x > 0 for log2, |x| < 1000 for exp2.
struct SinCos {
  double sin;
  double cos;
};
SinCos portable_sin_cos(double x);
double portable_log2(double x);
double portable_exp2(double x);

}  // namespace nibble::model
