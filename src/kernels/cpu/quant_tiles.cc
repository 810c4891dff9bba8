#include "kernels/cpu/quant_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "format/half.h"
#include "kernels/cpu/quant_layout.h"
#include "kernels/weight_errors.h"
#include "tensor/quant_block.h"

namespace nibble::kernels::cpu {
namespace {

constexpr DType kTypes[kQuantTypes] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ2_K,
                                       DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

int type_of(DType dtype) {
  return static_cast<int>(std::ranges::find(kTypes, dtype) - kTypes);
}

std::uint32_t quad(const std::uint8_t* code) {
  std::uint32_t word = 0;
  for (int j = 0; j < 4; ++j) word |= static_cast<std::uint32_t>(code[kQuadOrder[j]]) << (8 * j);
  return word;
}

// One row's share of a record: `row` points at its four bytes of the first line.
class RowOfRecord {
 public:
  explicit RowOfRecord(std::uint8_t* row) : row_(row) {}

  // Records start as zeros, so that bits are only added.
  void add(int line_at, std::uint32_t word) {
    std::uint32_t old = 0;
    std::memcpy(&old, row_ + line_at, sizeof old);
    old |= word;
    std::memcpy(row_ + line_at, &old, sizeof old);
  }
  void add_codes(const QuantLayout& layout, const QuantBlock& w) {
    const std::uint32_t low_mask = 0x01010101U * ((1U << layout.low_bits()) - 1);
    for (int t = 0; t < 8; ++t) {
      const std::uint32_t first = quad(w.code + 4 * t), second = quad(w.code + 32 + 4 * t);
      const std::uint32_t low = (first & low_mask) | (second & low_mask) << layout.low_bits();
      if (layout.low_bits() == 4) {
        add(t * kLineBytes, low);
      } else {
        add(t / 2 * kLineBytes, low << (t % 2 * 4));
      }
      const std::uint32_t high =
          (first & ~low_mask) >> layout.low_bits() | (second & ~low_mask) >> layout.low_bits() << layout.high_bits();
      if (layout.high_bits() == 2) add(layout.high_at() + t / 2 * kLineBytes, high << (t % 2 * 4));
      if (layout.high_bits() == 1) add(layout.high_at() + t / 4 * kLineBytes, high << (t % 4 * 2));
    }
  }
  void add_integers(const QuantLayout& layout, const QuantBlock& w) {
    std::uint8_t bytes[4];
    for (int j = 0; j < 4; ++j) {
      if (layout.group == 32) {
        bytes[j] = static_cast<std::uint8_t>(j % 2 == 0 ? w.scale[j / 2] : w.minimum[j / 2]);
      } else {
        bytes[j] = static_cast<std::uint8_t>(w.scale[kQuadOrder[j]] | w.minimum[kQuadOrder[j]] << 4);
      }
    }
    std::memcpy(row_ + layout.scales_at(), bytes, sizeof bytes);
  }

 private:
  std::uint8_t* row_;
};

void store_f16(std::uint8_t* line, int index, std::uint16_t bits) {
  std::memcpy(line + 2 * index, &bits, sizeof bits);
}

bool is_finite(std::uint16_t f16) {
  return (f16 & 0x7C00) != 0x7C00;
}

// Where the parts of a tile go.
struct Tile {
  std::uint8_t* records;        // [n_blocks, record_bytes]
  std::uint16_t* super_scales;  // [n_blocks / 4, 2, kTileRows]
};

// Returns the element where a block with a scale that is not finite starts; none: -1.
int pack_block(const QuantFormat& format, const QuantLayout& layout, const TensorView& view, std::size_t row, int block,
               const Tile& tile) {
  const QuantBlock w = unpack_block(format, view.row_span(row), static_cast<std::size_t>(block));
  const int lane = static_cast<int>(row % kTileRows);
  std::uint8_t* record = tile.records + static_cast<std::size_t>(block) * layout.record_bytes();
  RowOfRecord share(record + 4 * lane);
  share.add_codes(layout, w);
  if (layout.is_super) {
    share.add_integers(layout, w);
    std::uint16_t* scales = tile.super_scales + static_cast<std::size_t>(block) / 4 * 2 * kTileRows;
    scales[lane] = w.d[0];
    scales[kTileRows + lane] = w.m[0];
  } else {
    for (int half = 0; half < 2; ++half) {
      store_f16(record + layout.scales_at(), half * kTileRows + lane, w.d[half]);
      if (layout.has_minimum) store_f16(record + layout.scales_at() + kLineBytes, half * kTileRows + lane, w.m[half]);
    }
  }
  if (!is_finite(w.d[0]) || !is_finite(w.m[0])) return 64 * block;
  return is_finite(w.d[1]) && is_finite(w.m[1]) ? -1 : 64 * block + 32;
}

}  // namespace

bool is_quant_tile_type(DType dtype) {
  return type_of(dtype) < kQuantTypes;
}

Result<QuantLinear> make_quant_linear(const TensorView& view, ThreadPool& pool, PageArena& arena) {
  const QuantFormat& format = *find_quant_format(view.dtype);
  QuantLinear out;
  out.type = type_of(view.dtype);
  const QuantLayout& layout = kQuantLayouts[out.type];
  const std::size_t rows = view.rows(), n_tiles = (rows + kTileRows - 1) / kTileRows;
  const int n_blocks = static_cast<int>((view.cols() + 63) / 64);
  const std::size_t tile_bytes = static_cast<std::size_t>(n_blocks) * layout.record_bytes();
  const std::size_t tile_scales = layout.is_super ? static_cast<std::size_t>(n_blocks) / 4 * 2 * kTileRows : 0;
  out.records = arena.allocate(n_tiles * tile_bytes);
  if (layout.is_super) out.super_scales = arena.allocate(n_tiles * tile_scales * sizeof(std::uint16_t));
  std::uint8_t* records = out.records.data.get();
  auto* super_scales = reinterpret_cast<std::uint16_t*>(out.super_scales.data.get());
  std::atomic<std::size_t> bad_element = std::numeric_limits<std::size_t>::max();  // the first block that fails
  const auto pack_rows = [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t row = begin; row < end; ++row) {
      const std::size_t index = row / kTileRows;
      const Tile tile{records + index * tile_bytes, super_scales + index * tile_scales};
      for (int block = 0; block < n_blocks; ++block) {
        const int bad = pack_block(format, layout, view, row, block, tile);
        if (bad < 0) continue;
        const std::size_t element = row * view.cols() + static_cast<std::size_t>(bad);
        std::size_t first = bad_element.load();
        while (element < first && !bad_element.compare_exchange_weak(first, element)) {
        }
      }
    }
  };
  pool.parallel_for(rows, kTileRows, pack_rows);
  if (bad_element != std::numeric_limits<std::size_t>::max()) {
    return nonfinite_scale(view, bad_element / view.cols(), bad_element % view.cols());
  }
  out.weights = {.records = records,
                 .super_scales = super_scales,
                 .n_out = static_cast<int>(rows),
                 .n_in = static_cast<int>(view.cols())};
  return out;
}

}  // namespace nibble::kernels::cpu
