// Matrices of rows, as they come to the device.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/quant_rows.h"
#include "kernels/cuda/weight_loading.h"
#include "kernels/weight_errors.h"

namespace nibble::kernels::cuda {
namespace {

Error no_kernel(const TensorView& view) {
  return Error{.message = "weights of a type that the cuda backend has no kernel for",
               .tensor = std::string(view.name),
               .found = std::string(dtype_name(view.dtype)),
               .expected = "NVFP4, FP8 with its scales, F32, F16, BF16, or one of Q4_0 to Q6_K",
               .hint = "convert the file with 'nibble quantize'"};
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

}  // namespace nibble::kernels::cuda
