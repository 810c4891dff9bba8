#include "kernels/cpu/nvfp4_tiles.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "base/check.h"
#include "format/nvfp4.h"
#include "kernels/cpu/kernel_table.h"

namespace nibble::kernels::cpu {
namespace {

// A block's sum stays below 64 * 12 * (15 << kMaxOctaves) * 1023 < 2^31.
constexpr int kMaxOctaves = 7;
constexpr std::size_t kMaxGroupsPerStep = 16;

// |q9| = (8 + mantissa) << shift, a subnormal's shift being negative; q9 = 0 where is_zero.
struct GroupScale {
  int mantissa = 0;  // 0..7
  int shift = 0;     // -3..14
  bool is_zero = true;
  bool is_negative = false;
};

GroupScale split_scale(std::uint8_t byte) {
  const auto magnitude = static_cast<unsigned>(format::e4m3_x512(byte & 0x7F));
  if (magnitude == 0) return {};
  const int shift = std::bit_width(magnitude) - 4;
  const int eight_plus_m = shift >= 0 ? static_cast<int>(magnitude >> shift) : static_cast<int>(magnitude << -shift);
  return {eight_plus_m - 8, shift, false, (byte & 0x80) != 0};
}

bool all_codes_are_zero(const std::uint8_t* codes) {
  int bits = 0;
  for (int i = 0; i < format::kNvfp4GroupBytes; ++i) bits |= codes[i] & 0x77;
  return bits == 0;
}

// Eight codes in the order of the file, two a byte, to that of a record.
std::uint32_t interleave(std::uint32_t x) {
  const std::uint32_t even = x & 0x0F0F0F0F, odd = x >> 4 & 0x0F0F0F0F;  // elements 0 2 4 6, 1 3 5 7
  return ((even | even >> 12) & 0xFFFF) | (odd | odd >> 12) << 16;
}

struct OctaveRange {
  int lowest = INT8_MAX, highest = INT8_MIN;
  bool is_empty() const { return lowest > highest; }
  bool is_wide() const { return highest - lowest > kMaxOctaves; }
};
OctaveRange range_of(std::span<const GroupScale> groups) {
  OctaveRange range;
  for (const GroupScale& group : groups) {
    if (group.is_zero) continue;
    range.lowest = std::min(range.lowest, group.shift);
    range.highest = std::max(range.highest, group.shift);
  }
  return range;
}

// One row's share of a record, of its first n_groups groups.
void pack_block(const std::uint8_t* codes, const GroupScale* groups, int n_groups, int unit, std::uint8_t* record,
                int row) {
  std::uint8_t* row_scales = record + kRecordScales + 4 * row;
  for (int j = 0; j < kGroupsPerBlock; ++j) {
    const GroupScale group = kQuadOrder[j] < n_groups ? groups[kQuadOrder[j]] : GroupScale{};
    const int scale = group.is_zero ? 0 : group.mantissa | (group.shift - unit) << 3;
    const int digit = (unit + kUnitBias) >> (2 * j) & 3;
    row_scales[j] = static_cast<std::uint8_t>(scale | digit << 6);
  }
  for (int g = 0; g < n_groups; ++g) {
    const std::uint32_t keep = groups[g].is_zero ? 0 : 0xFFFFFFFF;
    const std::uint32_t signs = groups[g].is_negative ? 0x88888888 : 0;
    for (int z = 0; z < 2; ++z) {
      std::uint32_t eight;
      std::memcpy(&eight, codes + g * format::kNvfp4GroupBytes + 4 * z, sizeof eight);
      eight = interleave((eight ^ signs) & keep);
      std::memcpy(record + kLineBytes * (2 * g + z) + 4 * row, &eight, sizeof eight);
    }
  }
}

// One row's share of the records of a step; false if its scales span too many octaves.
bool pack_step(const std::uint8_t* codes, const std::uint8_t* scales, int n_groups, std::uint8_t* records, int row) {
  GroupScale storage[kMaxGroupsPerStep];
  const std::span groups(storage, static_cast<std::size_t>(n_groups));
  for (int g = 0; g < n_groups; ++g) groups[g] = split_scale(scales[g]);
  OctaveRange range = range_of(groups);
  if (range.is_wide()) {  // the scale of a group of zeros does not matter
    for (int g = 0; g < n_groups; ++g) {
      if (all_codes_are_zero(codes + g * format::kNvfp4GroupBytes)) groups[g] = {};
    }
    range = range_of(groups);
    if (range.is_wide()) return false;
  }
  const int unit = range.is_empty() ? 0 : range.lowest;
  for (int g = 0; g < n_groups; g += kGroupsPerBlock, records += kRecordBytes) {
    pack_block(codes + g * format::kNvfp4GroupBytes, &groups[g], std::min(n_groups - g, kGroupsPerBlock), unit, records,
               row);
  }
  return true;
}

}  // namespace

void pack_nvfp4_tiles(const Nvfp4View& view, int blocks_per_step, ThreadPool& pool, std::uint8_t* records,
                      std::uint8_t* is_wide) {
  static_assert(std::endian::native == std::endian::little, "codes are read four bytes at a time");
  const std::size_t n_groups = view.cols / kNvfp4Group;
  const std::size_t n_blocks = (n_groups + kGroupsPerBlock - 1) / kGroupsPerBlock;
  const std::size_t step_groups = static_cast<std::size_t>(blocks_per_step) * kGroupsPerBlock;
  NIBBLE_CHECK(step_groups <= kMaxGroupsPerStep, "a step has at most four blocks");
  const auto pack_tile = [&](std::size_t tile) {
    std::uint8_t* record = records + tile * n_blocks * kRecordBytes;
    const std::size_t first = tile * kTileRows;
    const int n_rows = static_cast<int>(std::min<std::size_t>(view.rows - first, kTileRows));
    for (std::size_t begin = 0; begin < n_groups; begin += step_groups) {
      const int width = static_cast<int>(std::min(n_groups - begin, step_groups));
      bool fits = true;
      for (int r = 0; r < n_rows; ++r) {
        const std::size_t group = (first + r) * n_groups + begin;
        fits &= pack_step(view.codes.data() + group * format::kNvfp4GroupBytes, view.scales.data() + group, width,
                          record, r);
      }
      for (int g = 0; g < width; g += kGroupsPerBlock, record += kRecordBytes) {
        if (!fits) std::memset(record + kRecordScales, kWideMark, 4);
      }
      if (!fits) is_wide[tile] = 1;
    }
  };
  const auto pack_tiles = [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t tile = begin; tile < end; ++tile) pack_tile(tile);
  };
  pool.parallel_for((view.rows + kTileRows - 1) / kTileRows, 1, pack_tiles);
}

}  // namespace nibble::kernels::cpu
