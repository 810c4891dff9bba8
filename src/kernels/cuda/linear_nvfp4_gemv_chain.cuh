// The chain of the NVFP4 gemv: one fma per block and output, in order.
#pragma once

#include <type_traits>

#include "kernels/cuda/linear_nvfp4_gemv_shape.cuh"

namespace nibble::kernels::cuda::nvfp4 {

// acc = fma(f32(S), c, acc) for every block of a tile in a round: for one row, of the weight row of this lane.
// kWide: factors too large to take up the unit of the sums.
template <typename S, bool kWide>
__device__ inline float chain_block(float sum, float factor, float acc) {
  return __fmaf_rn(kWide ? sum * S::kSumUnit : sum, factor, acc);
}
template <typename S, bool kWide>
__device__ inline float chain_one_row(const float2* sums, const float (*factors)[1], int n_blocks, float acc) {
  constexpr int kUnitSums = S::kSlotBytes / sizeof(float2), kWarps = S::kRoundBlocks / 2;
  float2 s[kWarps];
  float4 c[S::kRoundBlocks / 4];
#pragma unroll
  for (int i = 0; i < kWarps; ++i) s[i] = sums[i * kUnitSums];  // beyond the last pair: unused
#pragma unroll
  for (int i = 0; i < S::kRoundBlocks / 4; ++i) c[i] = reinterpret_cast<const float4*>(factors)[i];
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    if (i * 2 < n_blocks) {
      acc = chain_block<S, kWide>(s[i].x, i % 2 == 0 ? c[i / 2].x : c[i / 2].z, acc);
      acc = chain_block<S, kWide>(s[i].y, i % 2 == 0 ? c[i / 2].y : c[i / 2].w, acc);
    }
  }
  return acc;
}

// The same for eight or sixteen rows: a lane owns four of a weight row in each tile of columns.
template <typename S, int kColumnTiles, bool kWide>
__device__ inline void chain_rows(const float4* sums, const float (*factors)[kColumnTiles * kColumns], int n_blocks,
                                  float4 (&acc)[kColumnTiles], int lane) {
  constexpr int kUnitSums = S::kSlotBytes / sizeof(float4);
#pragma unroll 8
  for (int b = 0; b < n_blocks; ++b) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      const float4 s = sums[b / 2 * kUnitSums + (b % 2 * kColumnTiles + j) * kWarp];
      const float4 c = reinterpret_cast<const float4*>(factors[b])[j * 2 + lane % 2];
      acc[j].x = chain_block<S, kWide>(s.x, c.x, acc[j].x);
      acc[j].y = chain_block<S, kWide>(s.y, c.y, acc[j].y);
      acc[j].z = chain_block<S, kWide>(s.z, c.z, acc[j].z);
      acc[j].w = chain_block<S, kWide>(s.w, c.w, acc[j].w);
    }
  }
}

// One warp of the chain: runs through the tiles whose index in their group is its own modulo the number of such warps.
template <int kTokens, int kWarps>
struct Chain {
  using S = Shape<kTokens, kWarps>;
  static constexpr int kFactors = (S::kRoundBlocks * kTokens + kWarp - 1) / kWarp;  // of a lane in a round
  using Acc = std::conditional_t<kTokens == 1, float, float4[S::kColumnTiles]>;
  Shared<kTokens, kWarps>& shared;
  const Problem& p;
  int n_tiles;
  u32 chain;
  int lane;
  u32 base;  // of shared
  u32 stages;

  __device__ void load_factors(int round, float (&d)[kFactors]) const {
    const int first_row = blockIdx.y * S::kPassRows;
#pragma unroll
    for (int i = 0; i < kFactors; ++i) {
      const int index = i * kWarp + lane, row = first_row + index % kTokens;
      const int block = round * S::kRoundBlocks + index / kTokens;
      const bool is_inside = index < S::kRoundBlocks * kTokens && block < 2 * p.n_pairs && row < p.n_rows;
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
        if (index < S::kRoundBlocks * kTokens) (&shared.factors[chain][s][0][0])[index] = (d[i] * g) * unit;
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
  __device__ void run_blocks(const std::uint8_t* stage, int tile, int n_blocks, Acc& acc) const {
    const auto* factors = shared.factors[chain][shared.segment[tile]];
    if constexpr (kTokens == 1) {
      acc = chain_one_row<S, kWide>(reinterpret_cast<const float2*>(stage) + lane % kTileRows, factors, n_blocks, acc);
    } else {
      chain_rows<S, S::kColumnTiles, kWide>(reinterpret_cast<const float4*>(stage) + lane, factors, n_blocks, acc,
                                            lane);
    }
  }

  __device__ void write(int tile, const Acc& acc) const {
    const Segment& segment = p.segments[shared.segment[tile]];
    const int row = shared.tile[tile] * kTileRows + tile_row(kTokens == 1 ? lane % kTileRows : lane / 2);
    if (row >= segment.n_out || (kTokens == 1 && lane >= kTileRows)) return;
    const int first = blockIdx.y * S::kPassRows;
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
    Place<kTokens, kWarps> place(base, 0);
    const u32 end = place.loaded + stages * 8;
    place.skip(end, stages, chain);
    wait_for_predecessors();
    float d[kFactors];
    load_factors(0, d);
    const Groups groups(n_tiles);
    for (u32 group = 0, first = 0; group < groups.n; first += groups.size(group++)) {
      const u32 group_tiles = groups.size(group);
      for (int round = 0; round < n_rounds; ++round) {
        __syncwarp();
        const bool is_wide = set_factors(d);
        if (n_rounds > 1) load_factors(round + 1 < n_rounds ? round + 1 : 0, d);
        const int n_blocks = min(S::kRoundBlocks, 2 * p.n_pairs - round * S::kRoundBlocks);
        u32 ahead = group_tiles;  // places from here to the round after, behind those of other chains
        for (u32 tile = chain; tile < group_tiles; tile += S::kChains) {
          Acc acc;
          load_acc(tile, round == 0, acc);
          barrier_wait(place.summed(), place.parity);
          const std::uint8_t* stage = reinterpret_cast<const std::uint8_t*>(&shared) + (place.slot - base);
          if (is_wide) {
            run_blocks<true>(stage, first + tile, n_blocks, acc);
          } else {
            run_blocks<false>(stage, first + tile, n_blocks, acc);
          }
          __syncwarp();
          if (lane == 0) barrier_arrive(place.drained());
          if (round + 1 == n_rounds) {
            write(first + tile, acc);
          } else {
            store_acc(tile, acc);
          }
          if (tile + S::kChains < group_tiles) {
            place.skip(end, stages, S::kChains);
            ahead -= S::kChains;
          }
        }
        place.skip(end, stages, ahead);
      }
    }
  }
};

// The warp that keeps the ring full.
template <int kTokens, int kWarps>
struct Copier {
  using S = Shape<kTokens, kWarps>;
  const Shared<kTokens, kWarps>& shared;
  const Problem& p;
  int n_tiles, lane;
  u32 base;  // of shared
  u32 stages;

  // Starts the copy of the units of a step to its stage.
  __device__ void fill(const Step& step, u32 slot, u32 loaded) const {
    const int first_pair = step.round * kWarps, n_pairs = min(kWarps, p.n_pairs - first_pair);
    const std::uint8_t* from = shared.units[step.first + step.tile] + static_cast<std::size_t>(first_pair) * kUnitBytes;
#if __CUDA_ARCH__ >= 900
    fence_async_proxy();
    __syncwarp();
    if constexpr (S::kSlotBytes == kUnitBytes) {
      if (lane == 0) {
        barrier_expect(loaded, n_pairs * kUnitBytes);
        copy_bulk(slot, from, n_pairs * kUnitBytes, loaded);
      }
    } else {
      if (lane == 0) barrier_expect(loaded, n_pairs * kUnitBytes);
      __syncwarp();
      if (lane < n_pairs) copy_bulk(slot + lane * S::kSlotBytes, from + lane * kUnitBytes, kUnitBytes, loaded);
    }
#else
    __syncwarp();
    constexpr int kPieces = kUnitBytes / 16;
    for (int i = lane; i < n_pairs * kPieces; i += kWarp) {
      const u32 to = slot + i / kPieces * S::kSlotBytes + i % kPieces * 16;
      copy_async16_if(true, to, reinterpret_cast<u64>(from) + i * 16);
    }
    barrier_arrive_after_copies(loaded);
#endif
  }

  __device__ void run() const {
    const u32 n_rounds = (p.n_pairs + kWarps - 1) / kWarps;
    const Groups groups(n_tiles);
    Place<kTokens, kWarps> place(base, 0);
    const u32 end = place.loaded + stages * 8;
    u32 filled = 0;
    for (Step step(groups); step.n_tiles != 0; step.next(groups, n_rounds)) {
      if (filled++ >= stages) barrier_wait(place.drained(), place.parity ^ 1);
      fill(step, place.slot, place.loaded);
      place.next(end, stages);
    }
  }
};

}  // namespace nibble::kernels::cuda::nvfp4
