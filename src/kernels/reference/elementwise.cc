#include "kernels/reference/elementwise.h"

#include <algorithm>
#include <limits>

#include "format/contract_math.h"
#include "kernels/reference/vectorize.h"

namespace nibble::kernels::reference {
namespace {

using namespace format;

constexpr int kBlock = 64;
constexpr float kMax = 1023.0F;

NIBBLE_INLINE bool quantize_block(const float* x, int n, float* q, float* d) {
  u32 max_bits = 0;
  for (int i = 0; i < n; ++i) max_bits = std::max(max_bits, abs_bits(x[i]));
  const float max = bits_float(max_bits);
  const bool finite = !is_nonfinite(max);
  if (!finite || max < 0x1p-40F) {
    for (int i = 0; i < n; ++i) q[i] = 0;
    *d = finite ? 0 : std::numeric_limits<float>::quiet_NaN();
    return finite;
  }
  const float inv = kMax / max;
  for (int i = 0; i < n; ++i) q[i] = static_cast<float>(rne(x[i], inv));
  *d = max / kMax;
  return true;
}

}  // namespace

NIBBLE_VECTORIZED bool quantize_a11_row(const float* x, int n, float* q, float* d) {
  bool finite = true;
  for (int first = 0; first < n; first += kBlock) {
    finite &= quantize_block(x + first, std::min(kBlock, n - first), q + first, d + first / kBlock);
  }
  return finite;
}

NIBBLE_VECTORIZED void silu_mul(const float* gate, const float* up, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = silu(gate[i]) * up[i];
}

NIBBLE_VECTORIZED void gelu_mul(const float* gate, const float* up, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = gelu_tanh(gate[i]) * up[i];
}

}  // namespace nibble::kernels::reference
