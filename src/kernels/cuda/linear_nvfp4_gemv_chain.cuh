// The chain of the NVFP4 gemv: the float steps of the contract for each block and output, in order.
#pragma once

#include "kernels/cuda/linear_nvfp4_gemv_shape.cuh"

namespace nibble::kernels::cuda::nvfp4 {

// acc = fma(f32(S), c, acc) for every block of a tile in a round, of the weight row of this lane. kWide: factors too
// large to take up the unit of the sums.
template <bool kWide>
__device__ inline float chain_block(float sum, float factor, float acc) {
  return __fmaf_rn(kWide ? sum * Shape::kSumUnit : sum, factor, acc);
}
template <bool kWide>
__device__ inline float chain_row(const float* sums, const float* factors, int n_blocks, float acc, int lane) {
  const float* row = sums + lane % kTileRows * Shape::kRowStride;
  float4 s[kRoundBlocks / 4], c[kRoundBlocks / 4];
#pragma unroll
  for (int i = 0; i < kRoundBlocks / 4; ++i) {
    s[i] = reinterpret_cast<const float4*>(row)[i];
    c[i] = reinterpret_cast<const float4*>(factors)[i];
  }
#pragma unroll
  for (int i = 0; i < kRoundBlocks / 4; ++i) {
    if (i * 4 < n_blocks) {  // blocks come in pairs, and a pair that is not there has no sums
      acc = chain_block<kWide>(s[i].x, c[i].x, acc);
      acc = chain_block<kWide>(s[i].y, c[i].y, acc);
    }
    if (i * 4 + 2 < n_blocks) {
      acc = chain_block<kWide>(s[i].z, c[i].z, acc);
      acc = chain_block<kWide>(s[i].w, c[i].w, acc);
    }
  }
  return acc;
}

// The same of nc1-f16: a round is four super-blocks, of which the last may be a pair.
__device__ inline float chain_super_blocks(const float* sums, const float* factors, float tensor_scale, int n_blocks,
                                           float acc, int lane) {
  static_assert(kRoundBlocks % Nc1F16::kBlocks == 0 && Nc1F16::kBlocks == 4);
  const float* row = sums + lane % kTileRows * Shape::kRowStride;
  float4 s[kRoundBlocks / 4], c[kRoundBlocks / 4];
#pragma unroll
  for (int i = 0; i < kRoundBlocks / 4; ++i) {
    s[i] = reinterpret_cast<const float4*>(row)[i];
    c[i] = reinterpret_cast<const float4*>(factors)[i];
  }
#pragma unroll
  for (int i = 0; i < kRoundBlocks / 4; ++i) {
    if (i * 4 >= n_blocks) break;
    const float pair = s[i].x + s[i].y;
    const float sum = i * 4 + 2 < n_blocks ? pair + (s[i].z + s[i].w) : pair;
    acc = Nc1F16::add(acc, sum, c[i].x, tensor_scale);
  }
  return acc;
}

// One warp of the chain: runs through the tiles whose index in their group is its own modulo the number of such warps,
// which is that of tiles in a step.
template <typename Contract>
struct Chain {
  using S = Shape;
  static_assert(S::kUnits == S::kChains);
  Shared& shared;
  const Problem& p;
  int n_tiles;
  u32 chain;
  int lane;
  u32 base;  // of shared
  u32 ring_units;

  // Of a lane, where it has a block of the round.
  __device__ float load_factor(int round) const {
    const int block = round * kRoundBlocks + lane;
    const bool is_inside = lane < kRoundBlocks && block < 2 * p.n_pairs;
    return is_inside ? p.d[static_cast<std::size_t>(block) * p.d_stride] : 0.0f;
  }

  // c = d * g, one rounding, for each segment, in the unit of the sums unless one would overflow. Returns if one would.
  // In nc1-f16 no factor is, and all segments have the same.
  __device__ bool set_factors(float d) const {
    if constexpr (is_nc1_f16<Contract>) {
      if (lane < kRoundBlocks) shared.factors[chain][0][lane] = Contract::factor(d, S::kSumUnit);
      __syncwarp();
      return false;
    }
    constexpr float kLargest = 0x1p127f / S::kSumUnit;
    bool is_wide = false;
    for (int s = 0; s < p.n_segments; ++s) is_wide |= !(d * p.segments[s].scale < kLargest);
    is_wide = __any_sync(kAllLanes, is_wide);
    const float unit = is_wide ? 1.0f : S::kSumUnit;
    for (int s = 0; s < p.n_segments; ++s) {
      if (lane < kRoundBlocks) shared.factors[chain][s][lane] = (d * p.segments[s].scale) * unit;
    }
    __syncwarp();
    return is_wide;
  }

  template <bool kWide>
  __device__ float run_blocks(const float* sums, int tile, int n_blocks, float acc) const {
    if constexpr (is_nc1_f16<Contract>) {
      return chain_super_blocks(sums, shared.factors[chain][0], p.segments[shared.segment[tile]].scale, n_blocks, acc,
                                lane);
    } else {
      return chain_row<kWide>(sums, shared.factors[chain][shared.segment[tile]], n_blocks, acc, lane);
    }
  }

  __device__ void write(int tile, float acc) const {
    const Segment& segment = p.segments[shared.segment[tile]];
    const int row = shared.tile[tile] * kTileRows + lane;
    if (row >= segment.n_out || lane >= kTileRows) return;
    if constexpr (is_nc1_f16<Contract>) acc = Contract::finish(acc);
    segment.out[row] = segment.bias != nullptr ? acc + segment.bias[row] : acc;
  }

  __device__ void run() const {
    const int n_rounds = (p.n_pairs + kWarps - 1) / kWarps;
    wait_for_predecessors();
    float d = load_factor(0);
    u32 buffer = 0, parity = 0;
    const Groups groups(n_tiles, ring_units);
    for (u32 group = 0, first = 0; group < groups.n; first += groups.size(group++)) {
      const u32 group_tiles = groups.size(group);
      for (int round = 0; round < n_rounds; ++round) {
        __syncwarp();
        const bool is_wide = set_factors(d);
        if (n_rounds > 1) d = load_factor(round + 1 < n_rounds ? round + 1 : 0);
        const int n_blocks = min(kRoundBlocks, 2 * p.n_pairs - round * kRoundBlocks);
        for (u32 tile = 0; tile < group_tiles; tile += S::kUnits) {
          // Every warp of the chain sees every buffer go by, whether it holds a tile of its own or not: a barrier's
          // phases cannot run away from it.
          const u32 mine = tile + chain;
          const bool is_mine = mine < group_tiles;
          float acc = 0;
          if (is_mine && round != 0) acc = shared.acc[mine][lane % kTileRows];
          barrier_wait(base + offsetof(Shared, filled) + buffer * 8, parity);
          if (is_mine) {
            const float* sums = shared.sums[buffer][chain];
            acc = is_wide ? run_blocks<true>(sums, first + mine, n_blocks, acc)
                          : run_blocks<false>(sums, first + mine, n_blocks, acc);
          }
          __syncwarp();
          if (lane == 0) barrier_arrive(base + offsetof(Shared, drained) + buffer * 8);
          if (is_mine) {
            if (round + 1 == n_rounds) {
              write(first + mine, acc);
            } else {
              shared.acc[mine][lane % kTileRows] = acc;  // both halves of the warp have the same
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
