// What the NVFP4 linear kernels share: the packed layout of weights and the decoder.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "format/nc1.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_nvfp4.h"
#include "kernels/cuda/ptx.cuh"

namespace nibble::kernels::cuda::nvfp4 {

constexpr int kWarp = 32;
constexpr u32 kAllLanes = 0xFFFFFFFFu;
constexpr int kBlock = format::nc1::kBlock;

// --- the packed layout ---
//
// A tile is 16 rows, a pair two blocks of 64 along K. A unit holds a pair of a tile in the order in which the 32 lanes
// of a warp feed it to m16n8k16 as the A operand: [2 blocks, 32 lanes, 4 steps of k16] words of eight codes, then
// [8 lanes, 4] words of four scales. A layer is [n_tiles, n_pairs] units, a byte per tile that is 1 where the tile
// takes the exact route, the number of such tiles, and the list of them.

constexpr int kTileRows = 16;
constexpr int kBlockCodeBytes = kTileRows * kBlock / 2;
constexpr int kUnitCodeBytes = 2 * kBlockCodeBytes;
constexpr int kUnitBytes = kUnitCodeBytes + kTileRows * 8;

// The row of a tile that is row m of the matrix instruction; m and m + 8 belong to one lane and are kLaneRows apart.
// Where decoded rows go to shared memory for wgmma, they go to `shared_row`: then a thread's outputs are four
// neighbours, and 16-byte stores of a warp meet no bank twice.
constexpr int kLaneRows = 4;
__host__ __device__ constexpr int tile_row(int m) {
  return (m >> 1 & 3) | (m & 1) << 3 | (m & 8) >> 1;
}
__host__ __device__ constexpr int shared_row(int row) {
  return (row & 2) << 2 | row >> 2 << 1 | (row & 1);
}

struct Layout {
  int n_tiles;
  int n_pairs;
  std::size_t exact_flags;  // offsets in bytes
  std::size_t exact_count;
  std::size_t exact_list;
  std::size_t bytes;
};
__host__ __device__ constexpr Layout layout_of(int n_out, int n_in) {
  constexpr std::size_t kAlign = 256;
  const int n_tiles = (n_out + kTileRows - 1) / kTileRows, n_pairs = nvfp4_padded_inputs(n_in) / kNvfp4Pair;
  const std::size_t units = static_cast<std::size_t>(n_tiles) * n_pairs * kUnitBytes;
  const std::size_t flags = (units + kAlign - 1) / kAlign * kAlign;
  const std::size_t count = (flags + n_tiles + kAlign - 1) / kAlign * kAlign;
  const std::size_t list = count + kAlign;
  return {n_tiles, n_pairs, flags, count, list, list + sizeof(int) * n_tiles};
}

// Where the eight codes of a word lie. In each half of the word, the code for register r of the A operand has its sign
// and its magnitude at these bits; the low half is the even position of the register, the high half the odd one.
// The layout makes f16 patterns fall out in nine instructions, six of them on the integer pipe.
__host__ __device__ constexpr u32 place_code(int r, u32 code) {
  constexpr int kSign[4] = {15, 7, 8, 0}, kMagnitude[4] = {9, 1, 12, 4};
  return (code >> 3) << kSign[r] | (code & 7u) << kMagnitude[r];
}

// Four registers of two f16 each: the decoded code times 2^-14.
__device__ inline void decode(u32 word, u32 (&a)[4]) {
  constexpr u32 kHalves = 0x8E008E00u, kMagnitudes = 0x0E0E0E0Eu;
  a[0] = word & kHalves;
  a[1] = (word << 8) & kHalves;
  const u32 moved = select_bits<kMagnitudes>(word >> 3, word << 7);
  a[2] = moved & kHalves;
  a[3] = (moved << 8) & kHalves;
}

// A packed scale is the upper half of the f16 of scale * 2^7, without the sign, which the codes have taken over:
// five bits of exponent, three of mantissa, never subnormal.
__host__ __device__ constexpr u32 pack_scale(u32 e4m3) {
  const u32 exponent = e4m3 >> 3 & 15u, mantissa = e4m3 & 7u;
  if (exponent != 0) return (exponent + 15) << 3 | mantissa;
  if (mantissa == 0) return 0;
  if (mantissa == 1) return 13u << 3;
  if (mantissa < 4) return 14u << 3 | (mantissa & 1u) << 2;
  return 15u << 3 | (mantissa & 3u) << 1;
}

// Two f16: the scales at bytes kFirst and kFirst + 1 of a word of scales, times 2^7.
template <int kFirst>
__device__ inline u32 scale_pair(u32 scales) {
  return __byte_perm(scales, 0, kFirst == 0 ? 0x1404 : 0x3424) >> 1;
}

// The scale at byte i as f32, times 2^-9. A scale of zero comes out as another number; its codes are zero.
template <int i>
__device__ inline float scale_f32(u32 scales) {
  constexpr u32 kMask = 0x0FF00000u, kExponent = 0x30000000u;
  return __uint_as_float(and_or<kMask>(i < 3 ? scales << (20 - 8 * i) : scales >> 4, kExponent));
}

// c += a * b of m16n8k16. kFree: the sums may round.
template <bool kFree>
__device__ inline void add_products(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (kFree) {
    mma_f16_rounding(c, a, b0, b1);
  } else {
    mma_f16(c, a, b0, b1);
  }
}

// The sum of a block of value * q, value = code * scale, comes out of the matrix unit times 2^-7, that is 2^-17 in the
// integers of the contract; the factor of the fma takes that up.
constexpr float kSumUnit = 0x1p17f;

// Folds scales into a decoded word: `low` belongs to rows m < 8 of the instruction, `high` to the others.
__device__ inline void fold_scales(u32 (&a)[4], u32 low, u32 high) {
  a[0] = multiply_halves(a[0], low);
  a[1] = multiply_halves(a[1], high);
  a[2] = multiply_halves(a[2], low);
  a[3] = multiply_halves(a[3], high);
}

}  // namespace nibble::kernels::cuda::nvfp4
