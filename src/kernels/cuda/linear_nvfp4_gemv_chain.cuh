// The chain of the NVFP4 gemv: one fma per block and output, in order.
#pragma once

#include <type_traits>

#include "kernels/cuda/linear_nvfp4_gemv_shape.cuh"

namespace nibble::kernels::cuda::nvfp4 {

// acc = fma(f32(S), c, acc) for every block of a tile in a round: for one row, of the weight row of this lane.
// kWide: factors too large to take up the unit of the sums.
template <int kTokens, bool kWide>
__device__ inline float chain_block(float sum, float factor, float acc) {
  return __fmaf_rn(kWide ? sum * Shape<kTokens>::kSumUnit : sum, factor, acc);
}
template <bool kWide>
__device__ inline float chain_one_row(const float* sums, const float (*factors)[1], int n_blocks, float acc, int lane) {
  const float* row = sums + lane % kTileRows * Shape<1>::kRowStride;
  float4 s[kRoundBlocks / 4], c[kRoundBlocks / 4];
#pragma unroll
  for (int i = 0; i < kRoundBlocks / 4; ++i) {
    s[i] = reinterpret_cast<const float4*>(row)[i];
    c[i] = reinterpret_cast<const float4*>(factors)[i];
  }
#pragma unroll
  for (int i = 0; i < kRoundBlocks / 4; ++i) {
    if (i * 4 < n_blocks) {  // blocks come in pairs, and a pair that is not there has no sums
      acc = chain_block<1, kWide>(s[i].x, c[i].x, acc);
      acc = chain_block<1, kWide>(s[i].y, c[i].y, acc);
    }
    if (i * 4 + 2 < n_blocks) {
      acc = chain_block<1, kWide>(s[i].z, c[i].z, acc);
      acc = chain_block<1, kWide>(s[i].w, c[i].w, acc);
    }
  }
  return acc;
}

// The same for eight or sixteen rows: a lane owns four of a weight row in each tile of columns.
template <int kColumnTiles, bool kWide>
__device__ inline void chain_rows(const float* sums, const float (*factors)[kColumnTiles * kColumns], int n_blocks,
                                  float4 (&acc)[kColumnTiles], int lane) {
#pragma unroll 8
  for (int b = 0; b < n_blocks; ++b) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      const float4 s = reinterpret_cast<const float4*>(sums)[(b * kColumnTiles + j) * kWarp + lane];
      const float4 c = reinterpret_cast<const float4*>(factors[b])[j * 2 + lane % 2];
      acc[j].x = chain_block<kColumnTiles * kColumns, kWide>(s.x, c.x, acc[j].x);
      acc[j].y = chain_block<kColumnTiles * kColumns, kWide>(s.y, c.y, acc[j].y);
      acc[j].z = chain_block<kColumnTiles * kColumns, kWide>(s.z, c.z, acc[j].z);
      acc[j].w = chain_block<kColumnTiles * kColumns, kWide>(s.w, c.w, acc[j].w);
    }
  }
}

// One warp of the chain: runs through the tiles whose index in their group is its own modulo the number of such warps.
template <int kTokens>
struct Chain {
  using S = Shape<kTokens>;
  static constexpr int kFactors = (kRoundBlocks * kTokens + kWarp - 1) / kWarp;  // of a lane in a round
  using Acc = std::conditional_t<kTokens == 1, float, float4[S::kColumnTiles]>;
  Shared<kTokens>& shared;
  const Problem& p;
  int n_tiles;
  u32 chain;
  int lane;
  u32 base;  // of shared
  u32 ring_units;

  __device__ void load_factors(int round, float (&d)[kFactors]) const {
    const int first_row = blockIdx.y * kNvfp4GemvRows;
#pragma unroll
    for (int i = 0; i < kFactors; ++i) {
      const int index = i * kWarp + lane, row = first_row + index % kTokens;
      const int block = round * kRoundBlocks + index / kTokens;
      const bool is_inside = index < kRoundBlocks * kTokens && block < 2 * p.n_pairs && row < p.n_rows;
      d[i] = is_inside ? p.d[static_cast<std::size_t>(block) * p.d_stride + row] : 0.0f;
    }
  }

  // c = d * g, one rounding, for each segment, in the unit of the sums unless one would overflow. Returns if one would.
  __device__ bool set_factors(const float (&d)[kFactors]) const {
    constexpr float kLargest = 0x1p127f / S::kSumUnit;
    bool is_wide = false;
    for (int s = 0; s < p.n_segments; ++s) {
      const float g = p.segments[s].g;
#pragma unroll
      for (int i = 0; i < kFactors; ++i) is_wide |= !(d[i] * g < kLargest);
    }
    is_wide = __any_sync(kAllLanes, is_wide);
    const float unit = is_wide ? 1.0f : S::kSumUnit;
    for (int s = 0; s < p.n_segments; ++s) {
      const float g = p.segments[s].g;
#pragma unroll
      for (int i = 0; i < kFactors; ++i) {
        const int index = i * kWarp + lane;
        if (index < kRoundBlocks * kTokens) (&shared.factors[chain][s][0][0])[index] = (d[i] * g) * unit;
      }
    }
    __syncwarp();
    return is_wide;
  }

  __device__ void load_acc(int tile, bool is_first, Acc& acc) const {
    if constexpr (kTokens == 1) {
      acc = is_first ? 0.0f : shared.acc[tile][lane % kTileRows];
    } else {
#pragma unroll
      for (int j = 0; j < S::kColumnTiles; ++j) {
        acc[j] =
            is_first ? make_float4(0, 0, 0, 0) : reinterpret_cast<const float4*>(shared.acc[tile])[j * kWarp + lane];
      }
    }
  }
  __device__ void store_acc(int tile, const Acc& acc) const {
    if constexpr (kTokens == 1) {
      shared.acc[tile][lane % kTileRows] = acc;  // both halves of the warp have the same
    } else {
#pragma unroll
      for (int j = 0; j < S::kColumnTiles; ++j) reinterpret_cast<float4*>(shared.acc[tile])[j * kWarp + lane] = acc[j];
    }
  }

  template <bool kWide>
  __device__ void run_blocks(const float* sums, int tile, int n_blocks, Acc& acc) const {
    const auto* factors = shared.factors[chain][shared.segment[tile]];
    if constexpr (kTokens == 1) {
      acc = chain_one_row<kWide>(sums, factors, n_blocks, acc, lane);
    } else {
      chain_rows<S::kColumnTiles, kWide>(sums, factors, n_blocks, acc, lane);
    }
  }

  __device__ void write(int tile, const Acc& acc) const {
    const Segment& segment = p.segments[shared.segment[tile]];
    const int row = shared.tile[tile] * kTileRows + (kTokens == 1 ? lane : lane / 2);
    if (row >= segment.n_out || (kTokens == 1 && lane >= kTileRows)) return;
    const int first = blockIdx.y * kNvfp4GemvRows;
    const float bias = segment.bias != nullptr ? segment.bias[row] : 0.0f;
    const auto put = [&](int token, float value) {
      if (token >= p.n_rows) return;
      segment.out[static_cast<std::size_t>(token) * segment.out_stride + row] =
          segment.bias != nullptr ? value + bias : value;
    };
    if constexpr (kTokens == 1) {
      put(first, acc);
    } else {
#pragma unroll
      for (int j = 0; j < S::kColumnTiles; ++j) {
        const int token = first + j * kColumns + lane % 2 * 4;
        put(token, acc[j].x);
        put(token + 1, acc[j].y);
        put(token + 2, acc[j].z);
        put(token + 3, acc[j].w);
      }
    }
  }

  __device__ void run() const {
    const int n_rounds = (p.n_pairs + kWarps - 1) / kWarps;
    wait_for_predecessors();
    float d[kFactors];
    load_factors(0, d);
    u32 buffer = 0, parity = 0;
    const Groups groups(n_tiles, ring_units);
    for (u32 group = 0, first = 0; group < groups.n; first += groups.size(group++)) {
      const u32 group_tiles = groups.size(group);
      for (int round = 0; round < n_rounds; ++round) {
        __syncwarp();
        const bool is_wide = set_factors(d);
        if (n_rounds > 1) load_factors(round + 1 < n_rounds ? round + 1 : 0, d);
        const int n_blocks = min(kRoundBlocks, 2 * p.n_pairs - round * kRoundBlocks);
        for (u32 tile = 0; tile < group_tiles; tile += S::kUnits) {
          // Every warp of the chain sees every buffer go by, its own or not: a barrier's phases cannot run away from
          // it.
          constexpr bool kOneEach = S::kUnits == S::kChains;
          const u32 mine = kOneEach ? tile + chain : tile;
          const bool is_mine = kOneEach ? mine < group_tiles : tile % S::kChains == chain;
          Acc acc;
          if (is_mine) load_acc(mine, round == 0, acc);
          barrier_wait(base + offsetof(Shared<kTokens>, filled) + buffer * 8, parity);
          if (is_mine) {
            const float* sums = shared.sums[buffer][kOneEach ? chain : 0];
            if (is_wide) {
              run_blocks<true>(sums, first + mine, n_blocks, acc);
            } else {
              run_blocks<false>(sums, first + mine, n_blocks, acc);
            }
          }
          __syncwarp();
          if (lane == 0) barrier_arrive(base + offsetof(Shared<kTokens>, drained) + buffer * 8);
          if (is_mine) {
            if (round + 1 == n_rounds) {
              write(first + mine, acc);
            } else {
              store_acc(mine, acc);
            }
          }
          if (++buffer == S::kSumBuffers) {
            buffer = 0;
            parity ^= 1;
          }
        }
      }
    }
  }
};

}  // namespace nibble::kernels::cuda::nvfp4
