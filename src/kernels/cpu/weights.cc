#include "kernels/cpu/weights.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cmath>
#include <functional>
#include <string>

#include "format/half.h"
#include "format/nc1.h"
#include "kernels/cpu/nvfp4_tiles.h"

namespace nibble::kernels::cpu {
namespace {

namespace nc1 = format::nc1;

constexpr int kBias = 127;

int blocks_of(std::uint64_t cols) {
  return static_cast<int>((cols + nc1::kBlock - 1) / nc1::kBlock);
}
int tiles_of(std::uint64_t rows) {
  return static_cast<int>((rows + kTileRows - 1) / kTileRows);
}

// Entry of a [n_tiles, n_blocks, kTileRows] array.
std::size_t tile_index(std::size_t row, std::size_t block, std::size_t n_blocks) {
  return (row / kTileRows * n_blocks + block) * kTileRows + row % kTileRows;
}

// --- NVFP4 ---

Result<std::unique_ptr<CpuLinear>> make_nvfp4(const Nvfp4View& view, ThreadPool& pool, PageArena& arena) {
  if (!(view.tensor_scale >= nc1::kTensorScaleMin && view.tensor_scale <= nc1::kTensorScaleMax)) {
    return Error{.message = "a tensor scale is outside of what contract nc1 computes",
                 .tensor = std::string(view.name),
                 .found = std::to_string(view.tensor_scale),
                 .expected = "2^-42 to 2^42",
                 .hint = "quantize the model again, or scale the tensor by a power of two"};
  }
  const std::size_t n_blocks = blocks_of(view.cols), n_tiles = tiles_of(view.rows);
  Nvfp4Linear form;
  form.records = arena.allocate(n_tiles * n_blocks * kRecordBytes);
  form.is_wide = AlignedBuffer<std::uint8_t>(n_tiles);
  pack_nvfp4_tiles(view, pool, form.records.data.get(), form.is_wide.data());
  form.weights = {.records = form.records.data.get(),
                  .is_wide = form.is_wide.data(),
                  .codes = view.codes.data(),
                  .scales = view.scales.data(),
                  .g = view.tensor_scale * 0x1p-10F,
                  .n_out = static_cast<int>(view.rows),
                  .n_in = static_cast<int>(view.cols)};
  auto linear = std::make_unique<CpuLinear>();
  linear->reads_source = false;
  linear->form = std::move(form);
  return linear;
}

// --- F16, BF16 ---

// The smallest exponent >= -52 such that max / 2^u rounds to at most 16383.
int unit_exponent(float max) {
  if (max == 0.0F) return nc1::kRowUnitMin;
  int u = std::max(std::ilogb(max) - 13, nc1::kRowUnitMin);  // max / 2^u lies in [8192, 16384), or below
  if (std::nearbyint(std::ldexp(static_cast<double>(max), -u)) > nc1::kRowMax) ++u;
  return u;
}

Error nonfinite_weights(const TensorView& view) {
  return Error{.message = "weights are not finite",
               .tensor = std::string(view.name),
               .found = "a NaN or an infinity",
               .expected = "finite " + std::string(dtype_name(view.dtype)) + " values",
               .hint = "the file is damaged or was exported from a diverged model; get it again"};
}

Result<std::unique_ptr<CpuLinear>> make_rows16(const TensorView& view, ThreadPool& pool) {
  const std::size_t cols = view.cols(), n_blocks = blocks_of(cols);
  const bool is_bf16 = view.dtype == DType::kBF16;
  Rows16Linear form;
  form.is_bf16 = is_bf16;
  form.unit = AlignedBuffer<std::uint8_t>(tiles_of(view.rows()) * n_blocks * kTileRows);
  std::fill_n(form.unit.data(), form.unit.size(), static_cast<std::uint8_t>(kBias));
  const auto* values = reinterpret_cast<const std::uint16_t*>(view.bytes.data());
  std::atomic<bool> is_finite = true;
  const auto prepare_rows = [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t row = begin; row < end; ++row) {
      for (std::size_t block = 0; block < n_blocks; ++block) {
        const std::uint16_t* w = values + row * cols + block * nc1::kBlock;
        const std::size_t width = std::min<std::size_t>(cols - block * nc1::kBlock, nc1::kBlock);
        std::uint16_t largest = 0;  // magnitudes of both formats are ordered like their bits
        for (std::size_t i = 0; i < width; ++i) largest = std::max<std::uint16_t>(largest, w[i] & 0x7FFF);
        const float max = is_bf16 ? format::bf16_to_f32(largest) : format::f16_to_f32(largest);
        if (format::is_nonfinite(max)) {
          is_finite.store(false, std::memory_order_relaxed);
          return;
        }
        form.unit[tile_index(row, block, n_blocks)] = static_cast<std::uint8_t>(kBias + unit_exponent(max));
      }
    }
  };
  pool.parallel_for(view.rows(), kTileRows, std::ref(prepare_rows));
  if (!is_finite) return nonfinite_weights(view);
  form.weights = {.values = values,
                  .unit = form.unit.data(),
                  .n_out = static_cast<int>(view.rows()),
                  .n_in = static_cast<int>(cols)};
  auto linear = std::make_unique<CpuLinear>();
  linear->form = std::move(form);
  return linear;
}

// --- Q8_0, F32 ---

Result<std::unique_ptr<CpuLinear>> make_q8(const TensorView& view) {
  constexpr std::size_t kBlockBytes = 34;
  const std::size_t rows = view.rows(), n_blocks = view.cols() / 32;
  Q8Linear form;
  form.scales = AlignedBuffer<std::uint16_t>(tiles_of(rows) * n_blocks * kTileRows);
  const auto* blocks = reinterpret_cast<const std::uint8_t*>(view.bytes.data());
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t block = 0; block < n_blocks; ++block) {
      const std::uint8_t* source = blocks + (row * n_blocks + block) * kBlockBytes;
      const auto scale = static_cast<std::uint16_t>(source[0] | source[1] << 8);
      if (format::is_nonfinite(format::f16_to_f32(scale))) return nonfinite_weights(view);
      form.scales[tile_index(row, block, n_blocks)] = scale;
    }
  }
  form.weights = {.blocks = blocks,
                  .scales = form.scales.data(),
                  .n_out = static_cast<int>(rows),
                  .n_in = static_cast<int>(view.cols())};
  auto linear = std::make_unique<CpuLinear>();
  linear->form = std::move(form);
  return linear;
}

Result<std::unique_ptr<CpuLinear>> make_f32(const TensorView& view) {
  const auto* values = reinterpret_cast<const float*>(view.bytes.data());
  const std::size_t n = view.rows() * view.cols();
  for (std::size_t i = 0; i < n; ++i) {
    if (format::is_nonfinite(values[i])) return nonfinite_weights(view);
  }
  auto linear = std::make_unique<CpuLinear>();
  linear->form =
      F32Linear{{.values = values, .n_out = static_cast<int>(view.rows()), .n_in = static_cast<int>(view.cols())}};
  return linear;
}

Result<std::unique_ptr<CpuLinear>> make_quant(const TensorView& view, ThreadPool& pool, PageArena& arena) {
  auto linear = std::make_unique<CpuLinear>();
  NIBBLE_ASSIGN(linear->form, make_quant_linear(view, pool, arena));
  linear->reads_source = false;
  return linear;
}

Result<std::unique_ptr<CpuLinear>> make_dense(const TensorView& view, ThreadPool& pool, PageArena& arena) {
  if (is_quant_tile_type(view.dtype)) return make_quant(view, pool, arena);
  switch (view.dtype) {
    case DType::kF16:
    case DType::kBF16:
      return make_rows16(view, pool);
    case DType::kQ8_0:
      return make_q8(view);
    case DType::kF32:
      return make_f32(view);
    default:
      return Error{.message = "weights of a type that no kernel takes",
                   .tensor = std::string(view.name),
                   .found = std::string(dtype_name(view.dtype)),
                   .expected = "NVFP4, F32, F16, BF16, or one of Q4_0 to Q6_K",
                   .hint = "convert the file with 'nibble quantize'"};
  }
}

}  // namespace

Result<std::unique_ptr<Linear>> make_cpu_linear(const WeightSource& source, ThreadPool& pool, PageArena& arena) {
  const auto* nvfp4 = std::get_if<Nvfp4View>(&source);
  const auto* dense = std::get_if<TensorView>(&source);
  const std::uint64_t rows = nvfp4 != nullptr ? nvfp4->rows : dense->rows();
  const std::uint64_t cols = nvfp4 != nullptr ? nvfp4->cols : dense->cols();
  constexpr std::uint64_t kMaxExtent = INT_MAX / 2;
  if (rows == 0 || cols == 0 || rows > kMaxExtent || cols > kMaxExtent) {
    return Error{.message = "a linear layer has an impossible shape",
                 .tensor = std::string(nvfp4 != nullptr ? nvfp4->name : dense->name),
                 .found = std::to_string(cols) + " inputs, " + std::to_string(rows) + " outputs",
                 .expected = "1 to " + std::to_string(kMaxExtent) + " of each"};
  }
  NIBBLE_ASSIGN(std::unique_ptr<CpuLinear> linear,
                nvfp4 != nullptr ? make_nvfp4(*nvfp4, pool, arena) : make_dense(*dense, pool, arena));
  linear->n_out = static_cast<int>(rows);
  linear->n_in = static_cast<int>(cols);
  return std::unique_ptr<Linear>(std::move(linear));
}

}  // namespace nibble::kernels::cpu
