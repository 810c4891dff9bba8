#include "oracle/quant_linear.h"

#include "base/check.h"
#include "format/contract_math.h"
#include "format/half.h"

namespace nibble::oracle {

using namespace format;

QuantSums quant_block_sums(const QuantFormat& format, const QuantBlock& w, std::span<const std::int16_t> q, int begin,
                           int end) {
  QuantSums sums{};
  for (int i = begin; i < end; ++i) {
    const int g = i / format.group;
    sums.weights += std::int64_t{w.scale[g]} * (w.code[i] - format.offset) * q[i];
    sums.minimums += std::int64_t{w.minimum[g]} * q[i];
  }
  return sums;
}

float dot_quant_a11(const QuantFormat& format, std::span<const std::byte> row, const A11& x) {
  NIBBLE_CHECK(row.size() == bytes_of(format.dtype, x.q.size()), "a row and its activations differ in length");
  const int width = format.is_super ? 64 : 32;  // what shares d and m
  float acc = 0;
  for (std::size_t b = 0; b < x.d.size(); ++b) {
    const QuantBlock w = unpack_block(format, row, b);
    const std::span<const std::int16_t> q = std::span(x.q).subspan(b * kA11Block, static_cast<std::size_t>(w.n));
    for (int begin = 0; begin < w.n; begin += width) {
      const QuantSums sums = quant_block_sums(format, w, q, begin, begin + width);
      const float d = f16_to_f32(w.d[begin / 32]) * x.d[b];
      acc = fma_rn(static_cast<float>(sums.weights), d, acc);
      if (!format.has_minimum) continue;
      const float m = f16_to_f32(w.m[begin / 32]) * x.d[b];
      acc = fma_rn(static_cast<float>(sums.minimums), -m, acc);
    }
  }
  return acc;
}

}  // namespace nibble::oracle
