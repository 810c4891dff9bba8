#include "kernels/cuda/weights.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "format/nc1.h"
#include "kernels/cuda/quant_rows.h"
#include "kernels/cuda/weight_loading.h"
#include "kernels/weight_errors.h"

namespace nibble::kernels::cuda {

bool has_kernel_for(DType dtype) {
  RowFormat format = RowFormat::kF32;
  return dtype == DType::kNVFP4_E2M1 || dtype == DType::kF8_E4M3FN || row_format(dtype, format);
}

std::uint64_t WeightLoader::bytes_of(const WeightShape& weights) const {
  const std::uint64_t n = weights.rows * weights.cols;
  if (weights.dtype == DType::kNVFP4_E2M1) {
    if (activations_ == ActivationFormat::kNativeFp4) {
      return fp4_weight_bytes(static_cast<int>(weights.rows), static_cast<int>(weights.cols));
    }
    if (packs_w4a4()) return w4a4_packed_bytes(static_cast<int>(weights.rows), static_cast<int>(weights.cols));
    return packs() ? nvfp4_packed_bytes(static_cast<int>(weights.rows), static_cast<int>(weights.cols))
                   : n / 2 + n / kNvfp4Group;
  }
  // With a scale a row; those of a tensor are spread over its rows.
  if (weights.dtype == DType::kF8_E4M3FN) return weights.rows * (row_stride(weights.cols) + sizeof(float));
  RowFormat format = RowFormat::kF32;
  if (!row_format(weights.dtype, format)) return weights.bytes;
  switch (format) {
    case RowFormat::kF32:
      return weights.rows * row_stride(weights.cols) * 4;
    case RowFormat::kF16:
    case RowFormat::kBF16:
      return weights.rows * (row_stride(weights.cols) * 2 + (weights.cols + kBlockColumns - 1) / kBlockColumns);
    case RowFormat::kQ8:
      return n + n / 32 * sizeof(std::uint16_t);
    case RowFormat::kFp8:
    case RowFormat::kQuant:
      break;
  }
  const PackedQuantBytes bytes = packed_quant_bytes(*find_quant_format(weights.dtype), n);
  return bytes.codes + bytes.d + bytes.m + bytes.scales + bytes.minimums;
}

bool WeightLoader::packs() const {
  return use_tensor_cores_ && (activations_ == ActivationFormat::kA11 || activations_ == ActivationFormat::kA16Q8 ||
                               activations_ == ActivationFormat::kNative);
}

Result<DeviceNvfp4> WeightLoader::nvfp4(const Nvfp4View& view) {
  const bool for_tensor_cores = activations_ == ActivationFormat::kA11 || is_native(activations_);
  if (for_tensor_cores &&
      !(view.tensor_scale >= format::nc1::kTensorScaleMin && view.tensor_scale <= format::nc1::kTensorScaleMax)) {
    return Error{.message = "a tensor scale is outside of what contract nc1 computes",
                 .tensor = std::string(view.name),
                 .found = std::to_string(view.tensor_scale),
                 .expected = "2^-42 to 2^42",
                 .hint = "quantize the model again, or scale the tensor by a power of two"};
  }
  const bool encodes = activations_ == ActivationFormat::kW4A4 || activations_ == ActivationFormat::kNativeFp4;
  if (encodes && !view.input_scale_inv) return no_input_scale(view);
  DeviceNvfp4 to;
  to.activations = activations_;
  to.input_scale_inv = view.input_scale_inv.value_or(0.0F);
  NIBBLE_ASSIGN(to.codes, memory_for(view.name, view.codes.size()));
  NIBBLE_ASSIGN(to.scales, memory_for(view.name, view.scales.size()));
  NIBBLE_TRY(uploader_.upload(to.codes.as<void>(), std::as_bytes(view.codes)));
  NIBBLE_TRY(uploader_.upload(to.scales.as<void>(), std::as_bytes(view.scales)));
  to.rows = {.n_out = static_cast<int>(view.rows),
             .n_in = static_cast<int>(view.cols),
             .codes = to.codes.as<std::uint8_t>(),
             .scales = to.scales.as<std::uint8_t>(),
             .g = view.tensor_scale * 0x1p-10F,
             .tensor_scale = view.tensor_scale,
             .input_scale_inv = view.input_scale_inv.value_or(0.0F)};
  if (packs()) NIBBLE_TRY(pack(view, to));
  if (packs_w4a4()) NIBBLE_TRY(pack_w4a4(view, to));
  if (activations_ == ActivationFormat::kNativeFp4) NIBBLE_TRY(pack_fp4(view, to));
  return to;
}

// What the file has goes once the tensor cores' layout is made of it.
Status WeightLoader::pack(const Nvfp4View& view, DeviceNvfp4& to) {
  const std::string shape = fmt::format("{} x {}", to.rows.n_out, to.rows.n_in);
  NIBBLE_ASSIGN(to.packed, memory_for(view.name, nvfp4_packed_bytes(to.rows.n_out, to.rows.n_in)));
  const Nvfp4PackArgs args{
      .codes = to.rows.codes,
      .scales = to.rows.scales,
      .n_out = to.rows.n_out,
      .n_in = to.rows.n_in,
      .tensor_scale = view.tensor_scale,
      .packed = to.packed.as<std::uint8_t>(),
      .sums = activations_ == ActivationFormat::kA16Q8 ? Nvfp4Sums::kSuperBlocks : Nvfp4Sums::kBlocks};
  NIBBLE_TRY(check(pack_nvfp4(args, stream_.get()), "pack_nvfp4", shape));
  NIBBLE_TRY(check(finish_packing(args, &to.weights, stream_.get()), "finish_packing", shape));
  to.drop_rows();
  return ok_status();
}

Status WeightLoader::pack_w4a4(const Nvfp4View& view, DeviceNvfp4& to) {
  const Nvfp4Rows rows = to.rows;
  NIBBLE_ASSIGN(to.packed, memory_for(view.name, w4a4_packed_bytes(rows.n_out, rows.n_in)));
  NIBBLE_TRY(check(launch(PackW4A4Args{.codes = rows.codes,
                                       .scales = rows.scales,
                                       .n_out = rows.n_out,
                                       .n_in = rows.n_in,
                                       .packed = to.packed.as<std::uint8_t>()},
                          stream_.get()),
                   "pack_w4a4", fmt::format("{} x {}", rows.n_out, rows.n_in)));
  NIBBLE_TRY(stream_.wait());
  to.w4a4 = {.packed = to.packed.as<std::uint8_t>(),
             .n_out = rows.n_out,
             .n_in = rows.n_in,
             .tensor_scale = rows.tensor_scale,
             .input_scale_inv = rows.input_scale_inv};
  to.drop_rows();
  return ok_status();
}

Status WeightLoader::pack_fp4(const Nvfp4View& view, DeviceNvfp4& to) {
  const Nvfp4Rows rows = to.rows;
  NIBBLE_ASSIGN(to.packed, memory_for(view.name, fp4_weight_bytes(rows.n_out, rows.n_in)));
  NIBBLE_TRY(check(launch(PackFp4Args{.codes = rows.codes,
                                      .scales = rows.scales,
                                      .n_out = rows.n_out,
                                      .n_in = rows.n_in,
                                      .packed = to.packed.as<std::uint8_t>()},
                          stream_.get()),
                   "pack_fp4", fmt::format("{} x {}", rows.n_out, rows.n_in)));
  NIBBLE_TRY(stream_.wait());
  to.fp4 = {.packed = to.packed.as<std::uint8_t>(),
            .n_out = rows.n_out,
            .n_in = rows.n_in,
            .tensor_scale = rows.tensor_scale,
            .input_scale_inv = rows.input_scale_inv};
  to.drop_rows();
  return ok_status();
}

Result<std::unique_ptr<Linear>> WeightLoader::linear(const WeightSource& source) {
  auto linear = std::make_unique<CudaLinear>();
  if (const auto* view = std::get_if<Nvfp4View>(&source)) {
    NIBBLE_TRY(check_extent(view->name, view->rows, view->cols));
    auto made = nvfp4(*view);
    if (!made.ok()) return about(view->name, std::move(made).error());
    linear->form = std::move(*made);
    linear->n_out = static_cast<int>(view->rows);
    linear->n_in = static_cast<int>(view->cols);
    return std::unique_ptr<Linear>(std::move(linear));
  }
  NIBBLE_ASSIGN(const auto matrix, rows(source));
  if (matrix->not_finite) return *matrix->not_finite;
  linear->n_out = matrix->rows.n_out;
  linear->n_in = matrix->rows.n_in;
  linear->form = matrix;
  return std::unique_ptr<Linear>(std::move(linear));
}

Result<std::unique_ptr<Embedding>> WeightLoader::embedding(const WeightSource& source) {
  const auto* tensor = std::get_if<TensorView>(&source);
  RowFormat format = RowFormat::kF32;
  const bool is_known = tensor != nullptr ? row_format(tensor->dtype, format) : std::holds_alternative<Fp8View>(source);
  if (!is_known) {
    return Error{.message = "an embedding table of a type that the cuda backend does not look up",
                 .tensor = std::string(shape_of(source).name),
                 .found = std::string(dtype_name(tensor != nullptr ? tensor->dtype : DType::kNVFP4_E2M1)),
                 .expected = "F32, F16, BF16, FP8 with its scales, or one of Q4_0 to Q6_K",
                 .hint = "convert the file with 'nibble quantize'"};
  }
  auto embedding = std::make_unique<CudaEmbedding>();
  NIBBLE_ASSIGN(embedding->table, rows(source));
  embedding->vocab_size = embedding->table->rows.n_out;
  embedding->d_model = embedding->table->rows.n_in;
  return std::unique_ptr<Embedding>(std::move(embedding));
}

}  // namespace nibble::kernels::cuda
