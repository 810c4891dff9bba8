#include "kernels/reference/pack_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "format/contract_math.h"
#include "format/half.h"
#include "format/nvfp4.h"
#include "kernels/weight_errors.h"
#include "oracle/certificate.h"
#include "oracle/linear.h"
#include "tensor/quant_block.h"

namespace nibble::kernels::reference {
namespace {

constexpr int kBlock = 64;

std::uint16_t load_u16(const std::byte* at) {
  std::uint16_t value = 0;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

Error unsupported(const TensorView& view) {
  return Error{.message = "the reference backend has no arithmetic for this type of weights",
               .tensor = std::string(view.name),
               .found = std::string(dtype_name(view.dtype)),
               .expected = "NVFP4, FP8 with its scales, F32, F16, BF16, or one of Q4_0 to Q6_K"};
}

PanelMatrix pack_nvfp4(const Nvfp4View& view) {
  const int rows = static_cast<int>(view.rows);
  const int cols = static_cast<int>(view.cols);
  PanelMatrix m(rows, cols, kBlock);
  const float g = view.tensor_scale * 0x1p-10F;
  for (int r = 0; r < rows; ++r) {
    const oracle::Nvfp4Row row{view.row_codes(r), view.row_scales(r), view.tensor_scale};
    for (int k = 0; k < cols; ++k) {
      const std::uint32_t code = format::nvfp4_code(row.codes[k / 2], k);
      m.weight(r, k) =
          static_cast<float>(format::e4m3_x512(row.scales[k / format::kNvfp4Group]) * format::e2m1_x2(code));
    }
    for (int b = 0; b < m.n_blocks(); ++b) {
      m.unit(r, b) = g;
      const int width = std::min(kBlock, cols - b * kBlock);
      if (oracle::certificate_bound(row, b * kBlock, width) >= oracle::kCertificateLimit) m.needs_double(r, b);
    }
  }
  return m;
}

PanelMatrix pack_fp8(const Fp8View& view) {
  PanelMatrix m(static_cast<int>(view.rows), static_cast<int>(view.cols), kBlock);
  for (int r = 0; r < m.n_out(); ++r) {
    const std::span<const std::uint8_t> codes = view.row_codes(r);
    for (int k = 0; k < m.n_in(); ++k) m.weight(r, k) = static_cast<float>(format::e4m3_x512(codes[k]));
    for (int b = 0; b < m.n_blocks(); ++b) {
      m.unit(r, b) = view.scale(r, b * kBlock) * 0x1p-9F;
      m.needs_double(r, b);  // sums of up to 34 bits
    }
  }
  return m;
}

PanelMatrix pack_16bit(const TensorView& view) {
  PanelMatrix m(static_cast<int>(view.rows()), static_cast<int>(view.cols()), kBlock);
  std::vector<float> floats(view.cols());
  for (int r = 0; r < m.n_out(); ++r) {
    decode_row(view, r, floats.data());
    const oracle::IntegerRow row = oracle::make_integer_row(floats);
    for (int k = 0; k < m.n_in(); ++k) m.weight(r, k) = row.q[k];
    for (int b = 0; b < m.n_blocks(); ++b) {
      m.unit(r, b) = format::pow2(row.unit[b]);
      m.needs_double(r, b);  // sums of up to 30 bits
    }
  }
  return m;
}

// Contract nk1; Q8_0 is the same in nc1. The minimums of a group are a second pass over its activations.
Result<PanelMatrix> pack_quant(const QuantFormat& format, const TensorView& view) {
  const int block = format.is_super ? kBlock : 32, n_passes = format.has_minimum ? 2 : 1;
  PanelMatrix m(static_cast<int>(view.rows()), static_cast<int>(view.cols()), block, n_passes);
  const bool is_wide = kBlock * format.largest_scale * ((1 << format.code_bits) - 1) * oracle::kA11Max >= 1 << 24;
  for (int r = 0; r < m.n_out(); ++r) {
    for (int first = 0; first < m.n_in(); first += kBlock) {
      const QuantBlock w = unpack_block(format, view.row_span(r), first / kBlock);
      for (int i = 0; i < w.n; ++i) {
        const int b = (first + i) / block * n_passes;
        const int k = b * block + (first + i) % block;
        const std::size_t group = i / format.group;
        m.weight(r, k) = static_cast<float>(w.scale[group] * (w.code[i] - format.offset));
        m.unit(r, b) = format::f16_to_f32(w.d[i / 32]);
        if (is_wide) m.needs_double(r, b);
        if (format::is_nonfinite(m.unit(r, b))) return nonfinite_scale(view, r, first + i);
        if (n_passes == 1) continue;
        m.weight(r, k + block) = w.minimum[group];
        m.unit(r, b + 1) = -format::f16_to_f32(w.m[i / 32]);
        if (format::is_nonfinite(m.unit(r, b + 1))) return nonfinite_scale(view, r, first + i);
      }
    }
  }
  return m;
}

bool all_finite(const TensorView& view) {
  std::vector<float> row(view.cols());
  for (std::uint64_t r = 0; r < view.rows(); ++r) {
    decode_row(view, r, row.data());
    for (const float w : row) {
      if (format::is_nonfinite(w)) return false;
    }
  }
  return true;
}

}  // namespace

bool can_decode(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || find_quant_format(dtype) != nullptr;
}

void decode_row(const WeightSource& source, std::uint64_t row, float* out) {
  if (const auto* fp8 = std::get_if<Fp8View>(&source)) return fp8_row_to_f32(*fp8, row, out);
  if (const auto* nvfp4 = std::get_if<Nvfp4View>(&source)) {
    for (std::uint64_t k = 0; k < nvfp4->cols; ++k) {
      out[k] = format::nvfp4_dequantize(format::nvfp4_code(nvfp4->row_codes(row)[k / 2], static_cast<int>(k % 2)),
                                        nvfp4->row_scales(row)[k / format::kNvfp4Group], nvfp4->tensor_scale);
    }
    return;
  }
  const auto& table = std::get<TensorView>(source);
  const std::byte* bytes = table.row_span(row).data();
  const std::size_t n = table.cols();
  switch (table.dtype) {
    case DType::kF32:
      std::memcpy(out, bytes, n * sizeof(float));
      return;
    case DType::kF16:
      for (std::size_t i = 0; i < n; ++i) out[i] = format::f16_to_f32(load_u16(bytes + 2 * i));
      return;
    case DType::kBF16:
      for (std::size_t i = 0; i < n; ++i) out[i] = format::bf16_to_f32(load_u16(bytes + 2 * i));
      return;
    default:
      NIBBLE_CHECK(can_decode(table.dtype), "decode_row of a type that can_decode refuses");
      quant_row_to_f32(*find_quant_format(table.dtype), table.row_span(row), out);
  }
}

Result<PanelMatrix> pack_integers(const WeightSource& source) {
  if (const auto* nvfp4 = std::get_if<Nvfp4View>(&source)) return pack_nvfp4(*nvfp4);
  if (const auto* fp8 = std::get_if<Fp8View>(&source)) return pack_fp8(*fp8);
  const TensorView& view = std::get<TensorView>(source);
  if (!can_decode(view.dtype) || view.dtype == DType::kF32) return unsupported(view);
  if (const QuantFormat* format = find_quant_format(view.dtype)) return pack_quant(*format, view);
  if (!all_finite(view)) return nonfinite_weights(view);
  return pack_16bit(view);
}

Result<PanelMatrix> pack_floats(const WeightSource& source) {
  const TensorView* view = std::get_if<TensorView>(&source);
  if (view != nullptr && !can_decode(view->dtype)) return unsupported(*view);
  const SourceShape shape = shape_of(source);
  PanelMatrix m(static_cast<int>(shape.rows), static_cast<int>(shape.cols), kBlock);
  std::vector<float> row(shape.cols);
  for (int r = 0; r < m.n_out(); ++r) {
    decode_row(source, r, row.data());
    for (int k = 0; k < m.n_in(); ++k) m.weight(r, k) = row[k];
    for (int b = 0; b < m.n_blocks(); ++b) m.unit(r, b) = 1;
  }
  return m;
}

}  // namespace nibble::kernels::reference
