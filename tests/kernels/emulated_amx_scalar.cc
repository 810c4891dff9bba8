#include "kernels/cpu/simd_scalar.h"
// after the vocabulary
#include "kernels/cpu/kernels.inl"

namespace nibble::kernels::cpu {
namespace {

std::uint16_t bf16_of(float x) {
  return static_cast<std::uint16_t>(format::float_bits(x) >> 16);
}

void fold_record_bf16(const std::uint8_t* record, std::uint16_t* tiles) {
  for (int row = 0; row < kTileRows; ++row) {
    const std::uint8_t* scales = record + kRecordScales + 4 * row;
    int unit = -kUnitBias;
    for (int j = 0; j < 4; ++j) unit += (scales[j] >> 6) << (2 * j);
    for (int i = 0; i < 64; ++i) {
      const std::uint8_t byte = record[i / 8 * kLineBytes + 4 * row + kQuadOrder[i % 4]];
      const int code = format::e2m1_x2(i % 8 < 4 ? byte : byte >> 4), scale = scales[kQuadOrder[i / 16]];
      const int value = code * ((8 + (scale & 7)) << (scale >> 3 & 7));
      tiles[i / 2 * 32 + 2 * row + i % 2] = bf16_of(static_cast<float>(value) * format::pow2(unit));
    }
  }
}

void split_bf16(const std::int16_t* q, std::uint16_t* high, std::uint16_t* low) {
  for (int i = 0; i < 32; ++i) {
    low[i] = bf16_of(static_cast<float>(q[i] & 31));
    high[i] = bf16_of(static_cast<float>(q[i] - (q[i] & 31)));
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu

#include "kernels/cpu/gemm_amx.inl"
// after the kernels
#include "tests/kernels/emulated_amx.h"
#include "tests/kernels/emulated_tiles.h"

namespace nibble::kernels::cpu {

const EmulatedAmx kEmulatedAmxScalar = {linear_nvfp4_tiles<EmulatedTiles>, sizeof(TileScratch) / sizeof(float)};

}  // namespace nibble::kernels::cpu
