#include "oracle/rms_norm.h"

#include "base/check.h"
#include "format/portable.h"
#include "oracle/reduce.h"

namespace nibble::oracle {

void rms_norm(std::span<const float> x, std::span<const float> weight, float eps, std::span<float> y) {
  NIBBLE_CHECK(x.size() == weight.size() && x.size() == y.size(), "rms_norm: lengths differ");
  const float inverse_n = 1.0F / static_cast<float>(x.size());
  const float v = format::fma_rn(reduce_products(x, x), inverse_n, eps);
  const float r = 1.0F / format::sqrt_rn(v);
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = (x[i] * r) * weight[i];
}

}  // namespace nibble::oracle
