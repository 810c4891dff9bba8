#include "kernels/cuda/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <span>
#include <utility>
#include <vector>

#include "format/nc1.h"
#include "kernels/cuda/quant_rows.h"
#include "kernels/weight_errors.h"

namespace nibble::kernels::cuda {
namespace {

namespace nc1 = format::nc1;

constexpr std::uint64_t kRowAlign = 16;  // elements that a lane of linear_rows.cu loads at once
std::uint64_t row_stride(std::uint64_t n_in) {
  return (n_in + kRowAlign - 1) / kRowAlign * kRowAlign;
}

Status check_extent(std::string_view name, std::uint64_t rows, std::uint64_t cols) {
  constexpr std::uint64_t kMaxExtent = INT_MAX / 2;
  if (rows > 0 && cols > 0 && rows <= kMaxExtent && cols <= kMaxExtent) return ok_status();
  return Error{.message = "a linear layer has an impossible shape",
               .tensor = std::string(name),
               .found = std::to_string(cols) + " inputs, " + std::to_string(rows) + " outputs",
               .expected = "1 to " + std::to_string(kMaxExtent) + " of each"};
}

Error no_kernel(const TensorView& view) {
  return Error{.message = "weights of a type that the cuda backend has no kernel for",
               .tensor = std::string(view.name),
               .found = std::string(dtype_name(view.dtype)),
               .expected = "NVFP4, FP8 with its scales, F32, F16, BF16, or one of Q4_0 to Q6_K",
               .hint = "convert the file with 'nibble quantize'"};
}

// False for a type without a kernel.
bool row_format(DType dtype, RowFormat& format) {
  switch (dtype) {
    case DType::kF32:
      format = RowFormat::kF32;
      return true;
    case DType::kF16:
      format = RowFormat::kF16;
      return true;
    case DType::kBF16:
      format = RowFormat::kBF16;
      return true;
    case DType::kQ8_0:
      format = RowFormat::kQ8;
      return true;
    default:
      format = RowFormat::kQuant;
      return find_quant_format(dtype) != nullptr;
  }
}

Result<DeviceMemory> memory_for(std::string_view tensor, std::size_t bytes) {
  return DeviceMemory::allocate(bytes, "weights of " + std::string(tensor));
}

// What failed while this tensor was loaded.
Error about(std::string_view tensor, Error error) {
  if (error.tensor.empty()) error.tensor = std::string(tensor);
  return error;
}

// A word on the device that a check of values raises.
class BadFlag {
 public:
  explicit BadFlag(const Stream& stream) : stream_(stream) {}
  Status prepare() {
    NIBBLE_ASSIGN(memory_, DeviceMemory::allocate(sizeof(int), "a flag"));
    return check(cudaMemsetAsync(get(), 0, sizeof(int), stream_.get()), "cudaMemsetAsync", "a flag");
  }
  int* get() const { return memory_.as<int>(); }
  Result<bool> read() const {  // waits for the stream
    int value = 0;
    NIBBLE_TRY(check(cudaMemcpyAsync(&value, get(), sizeof value, cudaMemcpyDeviceToHost, stream_.get()),
                     "cudaMemcpyAsync", "a flag"));
    NIBBLE_TRY(stream_.wait());
    return value != 0;
  }

 private:
  const Stream& stream_;
  DeviceMemory memory_;
};

}  // namespace

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
  if (for_tensor_cores && !(view.tensor_scale >= nc1::kTensorScaleMin && view.tensor_scale <= nc1::kTensorScaleMax)) {
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
  to.codes = {};
  to.scales = {};
  to.rows = {};
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
  to.codes = {};
  to.scales = {};
  to.rows = {};
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
  to.codes = {};
  to.scales = {};
  to.rows = {};
  return ok_status();
}

// Values as they are, rows padded with zeros.
Status WeightLoader::load_values(const TensorView& view, DeviceRows& to) {
  const std::size_t element = view.dtype == DType::kF32 ? 4 : 2;
  const std::size_t rows = view.rows(), pitch = to.rows.stride * element;
  NIBBLE_ASSIGN(to.values, memory_for(view.name, rows * pitch));
  return copy_rows(view.bytes.data(), rows, view.row_bytes(), pitch, to.values);
}

Status WeightLoader::copy_rows(const void* from, std::size_t rows, std::size_t row_bytes, std::size_t pitch,
                               DeviceMemory& to) {
  if (pitch == row_bytes) {
    return uploader_.upload(to.as<void>(), {static_cast<const std::byte*>(from), rows * row_bytes});
  }
  const std::string what = fmt::format("{} bytes of rows", rows * pitch);
  NIBBLE_TRY(check(cudaMemsetAsync(to.as<void>(), 0, rows * pitch, stream_.get()), "cudaMemsetAsync", what));
  NIBBLE_TRY(check(
      cudaMemcpy2DAsync(to.as<void>(), pitch, from, row_bytes, row_bytes, rows, cudaMemcpyHostToDevice, stream_.get()),
      "cudaMemcpy2DAsync", what));
  return stream_.wait();  // the source may go
}

// Codes as they are, rows padded with zeros, and a row's scales beside them.
Result<std::shared_ptr<const DeviceRows>> WeightLoader::try_rows(const Fp8View& view) {
  NIBBLE_TRY(check_extent(view.name, view.rows, view.cols));
  if (auto known = loaded_[view.codes.data()].lock()) return known;
  auto to = std::make_shared<DeviceRows>();
  const std::size_t pitch = row_stride(view.cols);
  const std::uint64_t n_scales = (view.cols + view.scale_cols - 1) / view.scale_cols;
  std::vector<float> g(view.rows * n_scales);
  for (std::uint64_t i = 0; i < g.size(); ++i)
    g[i] = view.scale(i / n_scales, i % n_scales * view.scale_cols) * 0x1p-9F;
  NIBBLE_ASSIGN(to->values, memory_for(view.name, view.rows * pitch));
  NIBBLE_ASSIGN(to->scales, memory_for(view.name, g.size() * sizeof(float)));
  NIBBLE_TRY(copy_rows(view.codes.data(), view.rows, view.cols, pitch, to->values));
  NIBBLE_TRY(uploader_.upload(to->scales.as<void>(), std::as_bytes(std::span<const float>(g))));
  to->rows = {.format = RowFormat::kFp8,
              .n_out = static_cast<int>(view.rows),
              .n_in = static_cast<int>(view.cols),
              .stride = static_cast<int>(pitch),
              .values = to->values.as<void>(),
              .g = to->scales.as<float>(),
              .n_scales = static_cast<int>(n_scales),
              .scale_columns = static_cast<int>(view.scale_cols),
              .quant = {}};
  loaded_[view.codes.data()] = to;
  return std::shared_ptr<const DeviceRows>(std::move(to));
}

Status WeightLoader::load_q8(const TensorView& view, DeviceRows& to) {
  NIBBLE_ASSIGN(const DeviceMemory blocks, memory_for(view.name, view.bytes.size()));
  const std::size_t n_blocks = view.rows() * view.cols() / 32;
  NIBBLE_ASSIGN(to.values, memory_for(view.name, 32 * n_blocks));
  NIBBLE_ASSIGN(to.scales, memory_for(view.name, 2 * n_blocks));
  BadFlag bad(stream_);
  NIBBLE_TRY(bad.prepare());
  NIBBLE_TRY(uploader_.upload(blocks.as<void>(), view.bytes));
  NIBBLE_TRY(check(launch(SplitQ8Args{blocks.as<std::uint8_t>(), to.values.as<std::int8_t>(),
                                      to.scales.as<std::uint16_t>(), static_cast<std::int64_t>(n_blocks), bad.get()},
                          stream_.get()),
                   "split_q8", fmt::format("{} blocks", n_blocks)));
  to.rows.scales = to.scales.as<std::uint16_t>();
  NIBBLE_ASSIGN(const bool is_bad, bad.read());  // also waits before `blocks` goes
  if (is_bad) to.not_finite = nonfinite_weights(view);
  return ok_status();
}

// Unpacked on the host some rows at a time, while those before them travel.
Status WeightLoader::load_quant(const TensorView& view, DeviceRows& to) {
  constexpr std::uint64_t kElementsAtOnce = std::uint64_t{4} << 20;
  const QuantFormat& format = *find_quant_format(view.dtype);
  const std::uint64_t n_rows = view.rows(), n_in = view.cols();
  const bool is_narrow = has_narrow_codes(format);
  const PackedQuantBytes sizes = packed_quant_bytes(format, n_rows * n_in);
  NIBBLE_ASSIGN(to.values, memory_for(view.name, sizes.codes));
  NIBBLE_ASSIGN(to.units, memory_for(view.name, sizes.d));
  if (sizes.m != 0) {
    NIBBLE_ASSIGN(to.m, memory_for(view.name, sizes.m));
  }
  if (sizes.scales != 0) {
    NIBBLE_ASSIGN(to.scales, memory_for(view.name, sizes.scales));
  }
  if (sizes.minimums != 0) {
    NIBBLE_ASSIGN(to.minimums, memory_for(view.name, sizes.minimums));
  }
  const std::uint64_t rows_at_once = std::max<std::uint64_t>(1, kElementsAtOnce / n_in);
  PackedQuantRows packed;
  for (std::uint64_t first = 0; first < n_rows; first += rows_at_once) {
    const std::uint64_t rows = std::min(rows_at_once, n_rows - first);
    auto bad = pack_quant_rows(format, view, first, rows, packed);
    if (bad && !to.not_finite) to.not_finite = std::move(bad);
    const auto send = [&](const DeviceMemory& memory, const auto& values) {
      const auto bytes = std::as_bytes(std::span(values));
      return uploader_.upload(memory.as<std::byte>() + first * (bytes.size() / rows), bytes);
    };
    NIBBLE_TRY(send(to.values, packed.codes));
    NIBBLE_TRY(send(to.units, packed.d));
    NIBBLE_TRY(send(to.m, packed.m));
    NIBBLE_TRY(send(to.scales, packed.scales));
    NIBBLE_TRY(send(to.minimums, packed.minimums));
  }
  to.rows.values = to.values.as<void>();
  to.rows.quant = {.is_narrow = is_narrow,
                   .is_super = format.is_super,
                   .offset = static_cast<std::uint32_t>(is_narrow ? format.offset : 0),
                   .scales = to.scales.as<std::int8_t>(),
                   .minimums = to.minimums.as<std::uint8_t>(),
                   .d = to.units.as<std::uint16_t>(),
                   .m = to.m.as<std::uint16_t>()};
  return ok_status();
}

// Finds whether all values are finite and, for 16-bit rows, the units of their blocks.
Status WeightLoader::check_values(const TensorView& view, DeviceRows& to) {
  BadFlag bad(stream_);
  NIBBLE_TRY(bad.prepare());
  if (to.rows.format == RowFormat::kF32) {
    const auto n = static_cast<std::int64_t>(view.rows()) * to.rows.stride;
    NIBBLE_TRY(check(launch(CheckFiniteArgs{to.values.as<float>(), n, bad.get()}, stream_.get()), "check_finite",
                     fmt::format("{} values", n)));
  } else {
    NIBBLE_ASSIGN(to.units, memory_for(view.name, view.rows() * (padded_columns(to.rows.n_in) / kBlockColumns)));
    NIBBLE_TRY(check(launch(RowUnitsArgs{to.rows, to.units.as<std::uint8_t>(), bad.get()}, stream_.get()), "row_units",
                     fmt::format("{} x {}", to.rows.n_out, to.rows.n_in)));
    to.rows.units = to.units.as<std::uint8_t>();
  }
  NIBBLE_ASSIGN(const bool is_bad, bad.read());
  if (is_bad) to.not_finite = nonfinite_weights(view);
  return ok_status();
}

Result<std::shared_ptr<const DeviceRows>> WeightLoader::rows(const WeightSource& source) {
  const auto* eight = std::get_if<Fp8View>(&source);
  auto loaded = eight != nullptr ? try_rows(*eight) : try_rows(std::get<TensorView>(source));
  if (!loaded.ok()) return about(shape_of(source).name, std::move(loaded).error());
  return loaded;
}

Result<std::shared_ptr<const DeviceRows>> WeightLoader::try_rows(const TensorView& view) {
  auto to = std::make_shared<DeviceRows>();
  if (!row_format(view.dtype, to->rows.format)) return no_kernel(view);
  NIBBLE_TRY(check_extent(view.name, view.rows(), view.cols()));
  const auto known = loaded_[view.bytes.data()].lock();
  const auto is_same = [&](const Rows& r) {
    return r.format == to->rows.format && r.n_out == static_cast<int>(view.rows()) &&
           r.n_in == static_cast<int>(view.cols());
  };
  if (known && is_same(known->rows)) return known;
  to->rows.n_out = static_cast<int>(view.rows());
  to->rows.n_in = static_cast<int>(view.cols());
  to->rows.stride = static_cast<int>(row_stride(view.cols()));
  if (to->rows.format == RowFormat::kQ8) {
    NIBBLE_TRY(load_q8(view, *to));
    to->rows.values = to->values.as<void>();
  } else if (to->rows.format == RowFormat::kQuant) {
    NIBBLE_TRY(load_quant(view, *to));
  } else {
    NIBBLE_TRY(load_values(view, *to));
    to->rows.values = to->values.as<void>();
    NIBBLE_TRY(check_values(view, *to));
  }
  loaded_[view.bytes.data()] = to;
  return std::shared_ptr<const DeviceRows>(std::move(to));
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
