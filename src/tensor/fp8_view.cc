#include "tensor/fp8_view.h"

#include <algorithm>

#include "format/e4m3.h"

namespace nibble {

void fp8_row_to_f32(const Fp8View& weight, std::uint64_t row, float* out) {
  const std::span<const std::uint8_t> codes = weight.row_codes(row);
  for (std::uint64_t first = 0; first < weight.cols; first += weight.scale_cols) {
    const float scale = weight.scale(row, first);
    const std::uint64_t end = std::min(first + weight.scale_cols, weight.cols);
    for (std::uint64_t i = first; i < end; ++i) out[i] = format::e4m3_decode(codes[i]) * scale;
  }
}

}  // namespace nibble
