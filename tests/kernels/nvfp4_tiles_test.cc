// The records of NVFP4 hold what the file holds: read back element by element, without any kernel.
#include "kernels/cpu/nvfp4_tiles.h"

#include <cmath>

#include "format/nvfp4.h"
#include "kernels/cpu/kernel_table.h"
#include "tests/kernels/backend_fixture.h"

namespace nibble::kernels::cpu {
namespace {

// code * q9 of one element, from the layout as the header describes it.
double element_of_record(const std::uint8_t* record, int row, int element) {
  const int line = element / 8, in_half = element % 4, is_high = element % 8 / 4;
  const std::uint8_t byte = record[kLineBytes * line + 4 * row + kQuadOrder[in_half]];
  const std::uint8_t* scales = record + kRecordScales + 4 * row;
  const int scale = scales[kQuadOrder[element / 16]];
  int unit = -kUnitBias;
  for (int j = 0; j < 4; ++j) unit += (scales[j] >> 6) << (2 * j);
  const int q1 = format::e2m1_x2(is_high != 0 ? byte >> 4 : byte);
  return std::ldexp(q1 * ((8 + (scale & 7)) << (scale >> 3 & 7)), unit);
}

TEST(Nvfp4Tiles, HoldWhatTheFileHolds) {
  test::Random random(1);
  int n_read = 0;
  for (const std::uint64_t cols : {16U, 64U, 80U, 240U}) {
    const std::uint64_t rows = 37, n_blocks = (cols + 63) / 64, n_tiles = 3;
    std::vector<std::uint8_t> codes = random.bytes(rows * cols / 2), scales = random.bytes(rows * cols / 16);
    for (std::uint8_t& scale : scales) {
      scale = static_cast<std::uint8_t>((scale & 0xBF) + (random.below(10) == 0 ? 0 : 8));  // up to nine octaves
    }
    const Nvfp4View view{"w", rows, cols, codes, scales, 1.0F, {}};
    std::vector<std::uint8_t> records(n_tiles * n_blocks * kRecordBytes), is_wide(n_tiles);
    ThreadPool pool(2);
    pack_nvfp4_tiles(view, 1, pool, records.data(), is_wide.data());
    for (std::uint64_t row = 0; row < rows; ++row) {
      if (is_wide[row / kTileRows] != 0) continue;
      ++n_read;
      for (std::uint64_t i = 0; i < 64 * n_blocks; ++i) {
        const std::uint8_t* record =
            records.data() + (row / kTileRows * n_blocks + i / 64) * static_cast<std::size_t>(kRecordBytes);
        const std::size_t at = row * cols + i;
        const double expected = i < cols ? format::e2m1_x2(format::nvfp4_code(codes[at / 2], static_cast<int>(i))) *
                                               static_cast<double>(format::e4m3_x512(scales[at / 16]))
                                         : 0;
        ASSERT_EQ(element_of_record(record, static_cast<int>(row % kTileRows), static_cast<int>(i % 64)), expected)
            << "K " << cols << ", row " << row << ", element " << i;
      }
    }
  }
  EXPECT_GT(n_read, 60);
}

// Seven octaves fit a record; eight do not, unless the group at one end is zeros.
TEST(Nvfp4Tiles, SayWhichTilesAreWide) {
  ThreadPool pool(1);
  const auto is_wide = [&](std::uint8_t low, std::uint8_t high, std::uint8_t low_codes) {
    std::vector<std::uint8_t> codes(32, 0x11), scales{high, high, low, high}, records(kRecordBytes), wide(1);
    std::fill_n(codes.begin() + 16, 8, low_codes);
    pack_nvfp4_tiles({"w", 1, 64, codes, scales, 1.0F, {}}, 1, pool, records.data(), wide.data());
    return wide[0] != 0;
  };
  EXPECT_FALSE(is_wide(0x08, 0x40, 0x11));
  EXPECT_TRUE(is_wide(0x08, 0x48, 0x11));
  EXPECT_FALSE(is_wide(0x08, 0x48, 0x80));  // 0 and -0
  EXPECT_TRUE(is_wide(0x87, 0x40, 0x11));   // a subnormal of the octave below, negative
  EXPECT_FALSE(is_wide(0x80, 0x7E, 0x11));  // minus zero has no octave
}

}  // namespace
}  // namespace nibble::kernels::cpu
