#include "kernels/cpu/weights.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <string>

#include "format/half.h"
#include "format/nc1.h"
#include "kernels/cpu/amx_certificate.h"
#include "kernels/cpu/nvfp4_tiles.h"
#include "kernels/weight_errors.h"

namespace nibble::kernels::cpu {
namespace {

namespace nc1 = format::nc1;

int blocks_of(std::uint64_t cols) {
  return static_cast<int>((cols + nc1::kBlock - 1) / nc1::kBlock);
}
int tiles_of(std::uint64_t rows) {
  return static_cast<int>((rows + kTileRows - 1) / kTileRows);
}

// --- NVFP4 ---

Result<std::unique_ptr<CpuLinear>> make_nvfp4(const Nvfp4View& view, ActivationFormat format, const KernelTable& table,
                                              ThreadPool& pool, PageArena& arena) {
  const bool is_a11 = format == ActivationFormat::kA11;
  if (is_a11 && !(view.tensor_scale >= nc1::kTensorScaleMin && view.tensor_scale <= nc1::kTensorScaleMax)) {
    return Error{.message = "a tensor scale is outside of what contract nc1 computes",
                 .tensor = std::string(view.name),
                 .found = std::to_string(view.tensor_scale),
                 .expected = "2^-42 to 2^42",
                 .hint = "quantize the model again, or scale the tensor by a power of two"};
  }
  const std::size_t n_blocks = blocks_of(view.cols), n_tiles = tiles_of(view.rows);
  if (format == ActivationFormat::kW4A4 && !view.input_scale_inv) return no_input_scale(view);
  if (format == ActivationFormat::kW4A4 && view.cols > kMaxInputsW4A4) {
    return Error{.message = "a row is longer than what the kernels of contract w4a4 sum up",
                 .tensor = std::string(view.name),
                 .found = std::to_string(view.cols) + " inputs",
                 .expected = "at most " + std::to_string(kMaxInputsW4A4)};
  }
  Nvfp4Linear form;
  form.records = arena.allocate(n_tiles * n_blocks * kRecordBytes);
  form.is_wide = AlignedBuffer<std::uint8_t>(n_tiles);
  pack_nvfp4_tiles(view, format == ActivationFormat::kA16Q8 ? kSuperBlock / nc1::kBlock : 1, pool,
                   form.records.data.get(), form.is_wide.data());
  if (format == ActivationFormat::kA11 && table.wants_certificates) {
    form.certified = AlignedBuffer<std::uint8_t>(n_tiles * n_blocks);
    certify_nvfp4_tiles(form.records.data.get(), n_tiles * n_blocks, pool, form.certified.data());
  }
  form.weights = {.records = form.records.data.get(),
                  .is_wide = form.is_wide.data(),
                  .certified = form.certified.data(),
                  .codes = view.codes.data(),
                  .scales = view.scales.data(),
                  .tensor_scale = view.tensor_scale,
                  .g = view.tensor_scale * 0x1p-10F,
                  .input_scale_inv = view.input_scale_inv.value_or(0.0F),
                  .n_out = static_cast<int>(view.rows),
                  .n_in = static_cast<int>(view.cols)};
  auto linear = std::make_unique<CpuLinear>();
  linear->reads_source = false;
  linear->form = std::move(form);
  return linear;
}

// --- F16, BF16 ---

Result<std::unique_ptr<CpuLinear>> make_rows16(const TensorView& view, const KernelTable& table, ThreadPool& pool,
                                               PageArena& arena) {
  const std::size_t rows = view.rows(), cols = view.cols(), n_blocks = blocks_of(cols), n_tiles = tiles_of(rows);
  constexpr std::size_t kRecordSize = kRows16RecordBytes / sizeof(std::int16_t);
  Rows16Linear form;
  form.records = arena.allocate(n_tiles * n_blocks * kRows16RecordBytes);
  form.unit = AlignedBuffer<std::uint8_t>(n_tiles * n_blocks * kTileRows);
  auto* records = reinterpret_cast<std::int16_t*>(form.records.data.get());
  const auto* values = reinterpret_cast<const std::uint16_t*>(view.bytes.data());
  const auto pack = view.dtype == DType::kBF16 ? table.pack_bf16 : table.pack_f16;
  std::atomic<bool> is_finite = true;
  const auto pack_tiles = [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t tile = begin; tile < end; ++tile) {
      const std::size_t row = tile * kTileRows;
      const int n_rows = static_cast<int>(std::min<std::size_t>(rows - row, kTileRows));
      if (pack(values + row * cols, n_rows, static_cast<int>(cols), records + tile * n_blocks * kRecordSize,
               form.unit.data() + tile * n_blocks * kTileRows)) {
        is_finite.store(false, std::memory_order_relaxed);
      }
    }
  };
  pool.parallel_for(n_tiles, 1, pack_tiles);
  if (!is_finite) return nonfinite_weights(view);
  form.weights = {
      .records = records, .unit = form.unit.data(), .n_out = static_cast<int>(rows), .n_in = static_cast<int>(cols)};
  auto linear = std::make_unique<CpuLinear>();
  linear->reads_source = false;
  linear->form = std::move(form);
  return linear;
}

// --- Q8_0 ---

// One row's share of the records of a tile; false if a scale is not finite.
bool pack_q8_row(const std::uint8_t* blocks, std::size_t n_halves, std::size_t row_in_tile, std::uint8_t* records) {
  constexpr std::size_t kBlockBytes = 34, kScaleBytes = 2, kHalf = 32;
  for (std::size_t half = 0; half < n_halves; ++half, blocks += kBlockBytes) {
    const auto scale = static_cast<std::uint16_t>(blocks[0] | blocks[1] << 8);
    if (format::is_nonfinite(format::f16_to_f32(scale))) return false;
    std::uint8_t* record = records + half / 2 * kQ8RecordBytes;
    std::memcpy(record + kQ8RecordScales + (half % 2 * kTileRows + row_in_tile) * sizeof scale, blocks, sizeof scale);
    for (std::size_t i = 0; i < kHalf; ++i) {
      const std::size_t line = (half % 2 * kHalf + i) / 4;
      record[line * kLineBytes + 4 * row_in_tile + kQuadOrder[i % 4]] = blocks[kScaleBytes + i];
    }
  }
  return true;
}

Result<std::unique_ptr<CpuLinear>> make_q8(const TensorView& view, ThreadPool& pool, PageArena& arena) {
  const std::size_t rows = view.rows(), n_halves = view.cols() / 32, n_blocks = blocks_of(view.cols());
  Q8Linear form;
  form.records = arena.allocate(tiles_of(rows) * n_blocks * kQ8RecordBytes);
  std::atomic<bool> is_finite = true;
  const auto pack_rows = [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t row = begin; row < end; ++row) {
      if (!pack_q8_row(reinterpret_cast<const std::uint8_t*>(view.row_span(row).data()), n_halves, row % kTileRows,
                       form.records.data.get() + row / kTileRows * n_blocks * kQ8RecordBytes)) {
        is_finite.store(false, std::memory_order_relaxed);
      }
    }
  };
  pool.parallel_for(rows, kTileRows, pack_rows);
  if (!is_finite) return nonfinite_weights(view);
  form.weights = {
      .records = form.records.data.get(), .n_out = static_cast<int>(rows), .n_in = static_cast<int>(view.cols())};
  auto linear = std::make_unique<CpuLinear>();
  linear->reads_source = false;
  linear->form = std::move(form);
  return linear;
}

// --- FP8 ---

void pack_fp8_row(std::span<const std::uint8_t> codes, std::size_t row_in_tile, std::uint8_t* records,
                  std::uint16_t* small_lines) {
  constexpr std::size_t kQuad = 4, kLines = kFp8RecordBytes / kLineBytes;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t line = i / kQuad;
    records[line * kLineBytes + kQuad * row_in_tile + kQuadOrder[i % kQuad]] = fp8_byte(codes[i]);
    if (fp8_is_small(codes[i])) small_lines[line / kLines] |= static_cast<std::uint16_t>(1U << line % kLines);
  }
}

Result<std::unique_ptr<CpuLinear>> make_fp8(const Fp8View& view, ThreadPool& pool, PageArena& arena) {
  static_assert(kFp8RecordBytes == nc1::kBlock * kTileRows && kFp8Tile == 2 * nc1::kBlock);
  const std::size_t n_blocks = blocks_of(view.cols), n_tiles = tiles_of(view.rows);
  const bool is_tiled = view.scale_cols < view.cols;
  const std::size_t n_scales = is_tiled ? (n_blocks + 1) / 2 : 1;
  Fp8Linear form;
  form.records = arena.allocate(n_tiles * n_blocks * kFp8RecordBytes);
  form.small_lines = AlignedBuffer<std::uint16_t>(n_tiles * n_blocks);
  form.g = AlignedBuffer<float>(n_tiles * n_scales * kTileRows);
  const auto pack_rows = [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t row = begin; row < end; ++row) {
      const std::size_t tile = row / kTileRows, row_in_tile = row % kTileRows;
      pack_fp8_row(view.row_codes(row), row_in_tile, form.records.data.get() + tile * n_blocks * kFp8RecordBytes,
                   form.small_lines.data() + tile * n_blocks);
      for (std::size_t i = 0; i < n_scales; ++i) {
        form.g.data()[(tile * n_scales + i) * kTileRows + row_in_tile] = view.scale(row, i * kFp8Tile) * 0x1p-9F;
      }
    }
  };
  pool.parallel_for(view.rows, kTileRows, std::ref(pack_rows));
  form.weights = {.records = form.records.data.get(),
                  .small_lines = form.small_lines.data(),
                  .g = form.g.data(),
                  .scale_shift = is_tiled ? 1 : 31,
                  .n_scales = static_cast<int>(n_scales),
                  .n_out = static_cast<int>(view.rows),
                  .n_in = static_cast<int>(view.cols)};
  auto linear = std::make_unique<CpuLinear>();
  linear->reads_source = false;
  linear->form = std::move(form);
  return linear;
}

// --- F32 and the block-quantized types ---

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

Result<std::unique_ptr<CpuLinear>> make_dense(const TensorView& view, const KernelTable& table, ThreadPool& pool,
                                              PageArena& arena) {
  if (is_quant_tile_type(view.dtype)) return make_quant(view, pool, arena);
  switch (view.dtype) {
    case DType::kF16:
    case DType::kBF16:
      return make_rows16(view, table, pool, arena);
    case DType::kQ8_0:
      return make_q8(view, pool, arena);
    case DType::kF32:
      return make_f32(view);
    default:
      return Error{.message = "weights of a type that no kernel takes",
                   .tensor = std::string(view.name),
                   .found = std::string(dtype_name(view.dtype)),
                   .expected = "NVFP4, FP8 with its scales, F32, F16, BF16, or one of Q4_0 to Q6_K",
                   .hint = "convert the file with 'nibble quantize'"};
  }
}

}  // namespace

Result<std::unique_ptr<Linear>> make_cpu_linear(const WeightSource& source, const KernelTable& table, ThreadPool& pool,
                                                PageArena& arena, ActivationFormat format) {
  const auto [name, rows, cols] = shape_of(source);
  constexpr std::uint64_t kMaxExtent = INT_MAX / 2;
  if (rows == 0 || cols == 0 || rows > kMaxExtent || cols > kMaxExtent) {
    return Error{.message = "a linear layer has an impossible shape",
                 .tensor = std::string(name),
                 .found = std::to_string(cols) + " inputs, " + std::to_string(rows) + " outputs",
                 .expected = "1 to " + std::to_string(kMaxExtent) + " of each"};
  }
  std::unique_ptr<CpuLinear> linear;
  if (const auto* nvfp4 = std::get_if<Nvfp4View>(&source)) {
    NIBBLE_ASSIGN(linear, make_nvfp4(*nvfp4, format, table, pool, arena));
  } else if (const auto* fp8 = std::get_if<Fp8View>(&source)) {
    NIBBLE_ASSIGN(linear, make_fp8(*fp8, pool, arena));
  } else {
    NIBBLE_ASSIGN(linear, make_dense(std::get<TensorView>(source), table, pool, arena));
  }
  linear->n_out = static_cast<int>(rows);
  linear->n_in = static_cast<int>(cols);
  return std::unique_ptr<Linear>(std::move(linear));
}

}  // namespace nibble::kernels::cpu
