// A compute warp of the NVFP4 gemv: exact sums of blocks.
#pragma once

#include <type_traits>

#include "kernels/cuda/linear_nvfp4_gemv_shape.cuh"

namespace nibble::kernels::cuda::nvfp4 {

// The activations of a pair as the B operand: [block][step][register].
struct OneRow {
  u32 b[2][4][2];

  // Column `m` sees group m: the halves of one 16-byte piece, in two steps of one block.
  __device__ void set(uint4 piece, int m) {
    const u32 half = m % 2 == 0 ? 0x0000FFFFu : 0xFFFF0000u;
#pragma unroll
    for (int block = 0; block < 2; ++block) {
#pragma unroll
      for (int pair_of_steps = 0; pair_of_steps < 2; ++pair_of_steps) {
        const u32 mask = m / 2 == block * 2 + pair_of_steps ? half : 0;
        b[block][pair_of_steps * 2][0] = piece.x & mask;
        b[block][pair_of_steps * 2][1] = piece.y & mask;
        b[block][pair_of_steps * 2 + 1][0] = piece.z & mask;
        b[block][pair_of_steps * 2 + 1][1] = piece.w & mask;
      }
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) keep(b[i / 8][i / 2 % 4][i % 2]);
  }
};

template <int kTokens>
struct Activations {
  static constexpr int kPieces = kTokens == 1 ? 1 : 4 * (kTokens / kColumns);
  uint4 pieces[kPieces];

  __device__ void load(const Problem& p, int first_row, int pair, int m, int quad) {
    if constexpr (kTokens == 1) {
      const __half* q = p.q + static_cast<std::size_t>(first_row) * p.n_pairs * kNvfp4Pair + pair * kNvfp4Pair;
      pieces[0] = *reinterpret_cast<const uint4*>(q + m / 2 * 32 + quad * 8);
    } else {
#pragma unroll
      for (int j = 0; j < kPieces / 4; ++j) {
        const int row = first_row + j * kColumns + m;
        const __half* q = p.q + static_cast<std::size_t>(row) * p.n_pairs * kNvfp4Pair + pair * kNvfp4Pair;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          pieces[j * 4 + i] =
              row < p.n_rows ? *reinterpret_cast<const uint4*>(q + i * 32 + quad * 8) : make_uint4(0, 0, 0, 0);
        }
      }
    }
  }
};

struct Words {
  u32 w[2][4];   // [block][step]
  uint4 scales;  // one row: x alone
};
template <bool kOneRow>
__device__ inline Words load_words(u32 unit, int lane) {
  const uint4 a = load_shared16(unit + lane * 16), b = load_shared16(unit + kBlockCodeBytes + lane * 16);
  Words words = {{{a.x, a.y, a.z, a.w}, {b.x, b.y, b.z, b.w}}, {}};
  if constexpr (kOneRow) {
    words.scales.x = load_shared4(unit + kUnitCodeBytes + lane * 4);
  } else {
    words.scales = load_shared16(unit + kUnitCodeBytes + lane / 4 * 16);
  }
  return words;
}

// One row: sums of both blocks of a pair to sums[m][block]. kExact adds groups in f64, exact for any scales.
template <bool kExact>
__device__ inline void multiply_one_row(const Words& words, const OneRow& x, u32 sums, int lane) {
  float blocks[2][4] = {};
#pragma unroll
  for (int step = 0; step < 4; ++step) {
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      u32 a[4];
      decode(words.w[block][step], a);
      mma(blocks[block], a, x.b[block][step][0], x.b[block][step][1]);
    }
  }
  // Columns 0-3 are groups of the first block, which alone is not zero there; the others are of the second.
  float d[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) d[i] = (lane & 2) == 0 ? blocks[0][i] : blocks[1][i];
  // Lane `quad` has groups 2 * quad and 2 * quad + 1 of two rows. Neighbours swap, so that each ends with one row.
  using Sum = std::conditional_t<kExact, double, float>;
  const u32 scales = words.scales.x;
  const Sum low = Sum{d[0]} * scale_f32<0>(scales), high = Sum{d[2]} * scale_f32<2>(scales);
  Sum low_sum, high_sum;
  if constexpr (kExact) {
    low_sum = fma(double{d[1]}, double{scale_f32<1>(scales)}, low);
    high_sum = fma(double{d[3]}, double{scale_f32<3>(scales)}, high);
  } else {
    low_sum = __fmaf_rn(d[1], scale_f32<1>(scales), low);
    high_sum = __fmaf_rn(d[3], scale_f32<3>(scales), high);
  }
  const bool is_odd = (lane & 1) != 0;
  const Sum other = __shfl_xor_sync(kAllLanes, is_odd ? low_sum : high_sum, 1);
  store_shared4(sums, static_cast<float>((is_odd ? high_sum : low_sum) + other));
}
// Where a lane's sum goes: the neighbours of a pair have rows m and m + 8 of the same block.
__device__ inline u32 one_row_offset(int lane) {
  const u32 m = lane / 4 + (lane & 1) * 8;
  return (m * 2 + (lane >> 1 & 1)) * sizeof(float);
}

// Up to eight or sixteen rows, the scales folded into the weights: one step of one block.
template <int kColumnTiles>
__device__ inline void multiply_word(u32 word, u32 scales, const uint4 (&x)[4 * kColumnTiles], int block, int step,
                                     float (&d)[kColumnTiles][4]) {
  u32 a[4];
  decode(word, a);
  fold_scales(a, scale_pair<0>(scales), scale_pair<2>(scales));
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
    const uint4 piece = x[j * 4 + block * 2 + step / 2];
    mma(d[j], a, step % 2 == 0 ? piece.x : piece.z, step % 2 == 0 ? piece.y : piece.w);
  }
}

// A block group by group, added in f64: exact for any scales.
template <int kColumnTiles>
__device__ inline void multiply_block_exactly(const u32 (&words)[4], u32 scales01, u32 scales23,
                                              const uint4 (&x)[4 * kColumnTiles], int block,
                                              float (&d)[kColumnTiles][4]) {
  constexpr u32 kFirst = 0x00FF00FFu, kSecond = 0xFF00FF00u;  // of the two groups of a word, in both rows
  double total[kColumnTiles][4] = {};
#pragma unroll 1
  for (int group = 0; group < 4; ++group) {
    const u32 mask = group % 2 == 0 ? kFirst : kSecond;
    float part[kColumnTiles][4] = {};
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const bool is_here = step / 2 == group / 2;
      multiply_word<kColumnTiles>(words[step], is_here ? (step < 2 ? scales01 : scales23) & mask : 0, x, block, step,
                                  part);
    }
#pragma unroll
    for (int i = 0; i < 4 * kColumnTiles; ++i) total[i / 4][i % 4] += part[i / 4][i % 4];
  }
#pragma unroll
  for (int i = 0; i < 4 * kColumnTiles; ++i) d[i / 4][i % 4] = static_cast<float>(total[i / 4][i % 4]);
}

template <int kColumnTiles, bool kExact>
__device__ inline void multiply_rows(const Words& words, const uint4 (&x)[4 * kColumnTiles], u32 sums) {
  const u32 scales[2][2] = {{words.scales.x, words.scales.y}, {words.scales.z, words.scales.w}};
  float d[2][kColumnTiles][4] = {};
  if constexpr (kExact) {
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      multiply_block_exactly<kColumnTiles>(words.w[block], scales[block][0], scales[block][1], x, block, d[block]);
    }
  } else {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int block = 0; block < 2; ++block) {
        multiply_word<kColumnTiles>(words.w[block][step], scales[block][step / 2], x, block, step, d[block]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 2 * kColumnTiles; ++i) {
    const float(&v)[4] = d[i / kColumnTiles][i % kColumnTiles];
    const u32 at = sums + i * kTileRows * kColumns * sizeof(float);
    store_shared8(at, v[0], v[1]);
    store_shared8(at + kTileRows / 2 * kColumns * sizeof(float), v[2], v[3]);
  }
}

template <int kTokens, int kWarps>
struct Compute {
  using S = Shape<kTokens, kWarps>;
  const Shared<kTokens, kWarps>& shared;
  const Problem& p;
  int n_tiles, warp, lane;
  u32 base;  // of shared
  u32 stages;

  __device__ void multiply(const Words& words, const Activations<kTokens>& x, const OneRow& one_row, u32 sums,
                           bool exact) const {
    if constexpr (kTokens == 1) {
      if (exact) {
        multiply_one_row<true>(words, one_row, sums, lane);
      } else {
        multiply_one_row<false>(words, one_row, sums, lane);
      }
    } else {
      if (exact) {
        multiply_rows<S::kColumnTiles, true>(words, x.pieces, sums);
      } else {
        multiply_rows<S::kColumnTiles, false>(words, x.pieces, sums);
      }
    }
  }

  // This warp's unit of kHere tiles: read, multiplied, overwritten by its sums.
  template <int kHere, bool kMixed>
  __device__ void step(const Activations<kTokens>& x, const OneRow& one_row, const std::uint8_t* is_exact, u32 sums,
                       u32 end, Place<kTokens, kWarps>& place) const {
    Words words[kHere];
    u32 slots[kHere], summed[kHere];
#pragma unroll
    for (int u = 0; u < kHere; ++u) {
      barrier_wait(place.loaded, place.parity);
      words[u] = load_words<kTokens == 1>(place.slot, lane);
      slots[u] = place.slot + sums;
      summed[u] = place.summed();
      place.next(end, stages);
    }
    __syncwarp();  // every lane has read
#pragma unroll
    for (int u = 0; u < kHere; ++u) multiply(words[u], x, one_row, slots[u], kMixed && is_exact[u] != 0);
    __syncwarp();  // every lane has written
#pragma unroll
    for (int u = 0; u < kHere; ++u) {
      if (lane == 0) barrier_arrive(summed[u]);
    }
  }

  // kMixed: some tile of this block of threads takes the exact route.
  template <bool kMixed>
  __device__ void run() const {
    const int n_rounds = (p.n_pairs + kWarps - 1) / kWarps;
    const Groups groups(n_tiles);
    Place<kTokens, kWarps> place(base, warp * S::kSlotBytes);
    const u32 end = place.loaded + stages * 8;
    const u32 sums = kTokens == 1 ? one_row_offset(lane) : lane * 8;
    const int first_row = blockIdx.y * S::kPassRows;
    Activations<kTokens> next = {};
    wait_for_predecessors();
    if (warp < p.n_pairs) next.load(p, first_row, warp, lane / 4, lane % 4);
    for (u32 group = 0, first = 0; group < groups.n; first += groups.size(group++)) {
      const u32 group_tiles = groups.size(group);
      for (int round = 0; round < n_rounds; ++round) {
        const Activations<kTokens> x = next;
        const int following = (round + 1 < n_rounds ? round + 1 : 0) * kWarps + warp;
        if (n_rounds > 1 && following < p.n_pairs) next.load(p, first_row, following, lane / 4, lane % 4);
        OneRow one_row;
        if constexpr (kTokens == 1) one_row.set(x.pieces[0], lane / 4);
        constexpr int kUnits = kMixed ? 1 : S::kUnits;
        u32 tile = 0;
        if (round * kWarps + warp < p.n_pairs) {
          for (; tile + kUnits <= group_tiles; tile += kUnits) {
            step<kUnits, kMixed>(x, one_row, shared.is_exact + first + tile, sums, end, place);
          }
          if (tile < group_tiles) step<1, kMixed>(x, one_row, shared.is_exact + first + tile, sums, end, place);
        } else {  // the others wait for this warp all the same
          for (; tile < group_tiles; ++tile) {
            barrier_wait(place.loaded, place.parity);
            __syncwarp();
            if (lane == 0) barrier_arrive(place.summed());
            place.next(end, stages);
          }
        }
      }
    }
  }
};

}  // namespace nibble::kernels::cuda::nvfp4
