#include "kernels/cpu/weights.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <climits>
#include <cmath>
#include <functional>
#include <string>

#include "format/half.h"
#include "format/nc1.h"
#include "format/nvfp4.h"

namespace nibble::kernels::cpu {
namespace {

namespace nc1 = format::nc1;

constexpr int kGroupsPerBlock = nc1::kBlock / format::kNvfp4Group;
constexpr int kMaxOctaves =
    7;  // of scales in one block: 15 << 7 times a code of 12 is an int16, and a block's sum int32
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

struct GroupScale {
  int mantissa;  // signed, |.| <= 15; q9 = mantissa << shift
  int shift;
};
GroupScale split_scale(std::uint8_t byte) {
  const int exponent = (byte >> 3) & 15;
  const int magnitude = exponent == 0 ? byte & 7 : 8 + (byte & 7);
  return {(byte & 0x80) != 0 ? -magnitude : magnitude, std::max(exponent, 1) - 1};
}

bool all_codes_are_zero(const std::uint8_t* codes) {
  int bits = 0;
  for (int i = 0; i < format::kNvfp4GroupBytes; ++i) bits |= codes[i] & 0x77;
  return bits == 0;
}

// Fills the scales of one block; returns the exponent of their unit, or -1 if they span too many octaves.
int prepare_block(const std::uint8_t* scales, const std::uint8_t* codes, int n_groups, std::int16_t* scale_q) {
  GroupScale group[kGroupsPerBlock] = {};
  int lowest = INT_MAX;
  int highest = 0;
  const auto find_range = [&] {
    lowest = INT_MAX;
    highest = 0;
    for (int g = 0; g < n_groups; ++g) {
      if (group[g].mantissa == 0) continue;
      lowest = std::min(lowest, group[g].shift);
      highest = std::max(highest, group[g].shift);
    }
  };
  for (int g = 0; g < n_groups; ++g) group[g] = split_scale(scales[g]);
  find_range();
  if (lowest != INT_MAX && highest - lowest > kMaxOctaves) {  // the scale of a group of zeros does not matter
    for (int g = 0; g < n_groups; ++g) {
      if (all_codes_are_zero(codes + g * format::kNvfp4GroupBytes)) group[g] = {};
    }
    find_range();
  }
  if (lowest == INT_MAX) lowest = 0;
  if (highest - lowest > kMaxOctaves) return -1;
  for (int g = 0; g < n_groups; ++g) {
    if (group[g].mantissa != 0)
      scale_q[g] = static_cast<std::int16_t>(group[g].mantissa * (1 << (group[g].shift - lowest)));
  }
  return lowest;
}

Result<std::unique_ptr<CpuLinear>> make_nvfp4(const Nvfp4View& view, ThreadPool& pool) {
  if (!(view.tensor_scale >= nc1::kTensorScaleMin && view.tensor_scale <= nc1::kTensorScaleMax)) {
    return Error{.message = "a tensor scale is outside of what contract nc1 computes",
                 .tensor = std::string(view.name),
                 .found = std::to_string(view.tensor_scale),
                 .expected = "2^-42 to 2^42",
                 .hint = "quantize the model again, or scale the tensor by a power of two"};
  }
  const std::size_t n_blocks = blocks_of(view.cols), n_groups = view.cols / kNvfp4Group;
  Nvfp4Linear form;
  form.scale_q = AlignedBuffer<std::int16_t>(view.rows * n_blocks * kGroupsPerBlock);
  form.unit = AlignedBuffer<std::uint8_t>(tiles_of(view.rows) * n_blocks * kTileRows);
  form.is_wide = AlignedBuffer<std::uint8_t>(tiles_of(view.rows));
  std::fill_n(form.unit.data(), form.unit.size(), static_cast<std::uint8_t>(kBias));
  const auto prepare_rows = [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t row = begin; row < end; ++row) {
      const std::uint8_t* scales = view.scales.data() + row * n_groups;
      const std::uint8_t* codes = view.codes.data() + row * (view.cols / 2);
      for (std::size_t block = 0; block < n_blocks; ++block) {
        const int width = static_cast<int>(std::min<std::size_t>(n_groups - block * kGroupsPerBlock, kGroupsPerBlock));
        const int unit = prepare_block(scales + block * kGroupsPerBlock, codes + block * nc1::kBlock / 2, width,
                                       form.scale_q.data() + (row * n_blocks + block) * kGroupsPerBlock);
        if (unit < 0) {
          form.is_wide[row / kTileRows] = 1;
        } else {
          form.unit[tile_index(row, block, n_blocks)] = static_cast<std::uint8_t>(kBias + unit);
        }
      }
    }
  };
  pool.parallel_for(view.rows, kTileRows, std::ref(prepare_rows));
  form.weights = {.codes = view.codes.data(),
                  .scales = view.scales.data(),
                  .scale_q = form.scale_q.data(),
                  .unit = form.unit.data(),
                  .is_wide = form.is_wide.data(),
                  .g = view.tensor_scale * 0x1p-10F,
                  .n_out = static_cast<int>(view.rows),
                  .n_in = static_cast<int>(view.cols)};
  auto linear = std::make_unique<CpuLinear>();
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

Result<std::unique_ptr<CpuLinear>> make_dense(const TensorView& view, ThreadPool& pool) {
  switch (view.dtype) {
    case DType::kF16:
    case DType::kBF16:
      return make_rows16(view, pool);
    case DType::kQ8_0:
      return make_q8(view);
    case DType::kF32:
      return make_f32(view);
    default:
      return Error{.message = "weights of a type that no kernel of nc1 takes",
                   .tensor = std::string(view.name),
                   .found = std::string(dtype_name(view.dtype)),
                   .expected = "NVFP4, F16, BF16, Q8_0 or F32",
                   .hint = "convert the file with 'nibble quantize'"};
  }
}

}  // namespace

Result<std::unique_ptr<Linear>> make_cpu_linear(const WeightSource& source, ThreadPool& pool) {
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
                nvfp4 != nullptr ? make_nvfp4(*nvfp4, pool) : make_dense(*dense, pool));
  linear->n_out = static_cast<int>(rows);
  linear->n_in = static_cast<int>(cols);
  return std::unique_ptr<Linear>(std::move(linear));
}

}  // namespace nibble::kernels::cpu
