#include "kernels/cuda/quant_rows.h"

#include "kernels/weight_errors.h"

namespace nibble::kernels::cuda {
namespace {

constexpr int kPerBlock = 64;
constexpr int kPerSmallBlock = 32, kPerSuperBlock = 256;  // elements that share d and m

bool is_finite(std::uint16_t f16) {
  return (f16 & 0x7C00) != 0x7C00;
}

void append_codes(const QuantFormat& format, const QuantBlock& block, std::vector<std::uint8_t>& to) {
  if (!has_narrow_codes(format)) {
    for (int i = 0; i < block.n; ++i) to.push_back(static_cast<std::uint8_t>(block.code[i] - format.offset));
    return;
  }
  constexpr int kHalf = kQuantGroup / 2;
  for (int group = 0; group < block.n; group += kQuantGroup) {
    const std::uint8_t* code = block.code + group;
    for (int j = 0; j < kHalf; ++j) to.push_back(static_cast<std::uint8_t>(code[j] | code[j + kHalf] << 4));
  }
}

// d and m of what begins in this block: of both its halves, or of its super-block.
void append_units(const QuantFormat& format, const QuantBlock& block, std::uint64_t index, PackedQuantRows& out) {
  const int n_units = format.is_super ? (index % 4 == 0 ? 1 : 0) : block.n / 32;
  for (int i = 0; i < n_units; ++i) {
    out.d.push_back(block.d[i]);
    if (format.has_minimum) out.m.push_back(block.m[i]);
  }
}

void append(const QuantFormat& format, const QuantBlock& block, std::uint64_t index, PackedQuantRows& out) {
  append_codes(format, block, out.codes);
  append_units(format, block, index, out);
  if (!format.is_super) return;  // scales of 1, minimums of -1
  for (int i = 0; i < block.n; i += kQuantGroup) {
    out.scales.push_back(static_cast<std::int8_t>(block.scale[i / format.group]));
    if (format.has_minimum) out.minimums.push_back(static_cast<std::uint8_t>(block.minimum[i / format.group]));
  }
}

}  // namespace

bool has_narrow_codes(const QuantFormat& format) {
  return format.code_bits <= 4;
}

PackedQuantBytes packed_quant_bytes(const QuantFormat& format, std::uint64_t n) {
  const std::uint64_t units = n / (format.is_super ? kPerSuperBlock : kPerSmallBlock) * sizeof(std::uint16_t);
  const std::uint64_t groups = n / kQuantGroup;
  return {.codes = has_narrow_codes(format) ? n / 2 : n,
          .d = units,
          .m = format.has_minimum ? units : 0,
          .scales = format.is_super ? groups : 0,
          .minimums = format.is_super && format.has_minimum ? groups : 0};
}

std::optional<Error> pack_quant_rows(const QuantFormat& format, const TensorView& view, std::uint64_t first,
                                     std::uint64_t n, PackedQuantRows& out) {
  std::optional<Error> bad;
  out.codes.clear();
  out.scales.clear();
  out.minimums.clear();
  out.d.clear();
  out.m.clear();
  const std::uint64_t n_blocks = (view.cols() + kPerBlock - 1) / kPerBlock;
  for (std::uint64_t row = first; row < first + n; ++row) {
    for (std::uint64_t b = 0; b < n_blocks; ++b) {
      const QuantBlock block = unpack_block(format, view.row_span(row), b);
      append(format, block, b, out);
      for (int i = 0; i < block.n / 32 && !bad; ++i) {
        if (!is_finite(block.d[i]) || !is_finite(block.m[i])) bad = nonfinite_scale(view, row, b * kPerBlock + 32 * i);
      }
    }
  }
  return bad;
}

}  // namespace nibble::kernels::cuda
