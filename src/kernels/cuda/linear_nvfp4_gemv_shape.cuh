// What the warps of the NVFP4 gemv agree on: its shape, its shared memory, the tiles of a block of threads and their
// order.
#pragma once

#include "kernels/cuda/linear_nvfp4_launch.h"

namespace nibble::kernels::cuda::nvfp4 {

constexpr int kWarps = 8;  // that compute
constexpr int kRoundBlocks = 2 * kWarps;
constexpr int kMaxTiles = 128;  // of a block of threads
constexpr int kColumns = 8;     // of the matrix instruction

// One row.
struct Shape {
  static constexpr int kUnits = 2;       // of a step of a warp: one pair of so many tiles
  static constexpr int kRingUnits = 10;  // of a warp; also the most tiles between two passes over K
  static constexpr int kChains = 2;      // warps that run the fma per block; each has its tiles
  static constexpr float kSumUnit = 0x1p33f;
  static constexpr int kThreads = (kWarps + kChains) * kWarp;
  static constexpr int kBlocksPerMultiprocessor = 2;
  static constexpr int kSumBuffers = 4;
  // Sums of a tile in a round: [16 rows, blocks] with a gap that keeps 16-byte loads of neighbouring rows off each
  // other's banks.
  static constexpr int kRowStride = kRoundBlocks + 4;
  static constexpr int kSums = kTileRows * kRowStride;
};

// What lies behind it in shared memory: rings [kWarps, ring_units, kUnitBytes], as large as the GPU allows.
struct alignas(128) Shared {
  using S = Shape;
  alignas(16) float sums[S::kSumBuffers][S::kUnits][S::kSums];
  alignas(16) float acc[S::kRingUnits][kTileRows];  // of the chain between rounds
  alignas(16) float factors[S::kChains][kNvfp4MaxSegments][kRoundBlocks];
  const std::uint8_t* units[kMaxTiles + S::kRingUnits];  // of each tile
  std::uint8_t segment[kMaxTiles];
  std::uint8_t is_exact[kMaxTiles];
  int tile[kMaxTiles];  // within its segment
  int has_exact;
  u64 filled[S::kSumBuffers], drained[S::kSumBuffers];
};

// Tiles of this block of threads, written down once.
__device__ inline int list_tiles(const Problem& p, bool only_exact, Shared& shared) {
  int n_tiles = 0;
  for (int s = 0; s < p.n_segments; ++s) n_tiles += p.segments[s].n_tiles;
  const int first = blockIdx.x, step = gridDim.x;
  const int mine = n_tiles > first ? (n_tiles - first + step - 1) / step : 0;
  for (int i = threadIdx.x; i < mine; i += Shape::kThreads) {
    int tile = first + i * step, s = 0;
    for (; tile >= p.segments[s].n_tiles; ++s) tile -= p.segments[s].n_tiles;
    if (only_exact) tile = p.segments[s].exact_list[tile];
    shared.units[i] = p.segments[s].units + static_cast<std::size_t>(tile) * p.n_pairs * kUnitBytes;
    shared.segment[i] = static_cast<std::uint8_t>(s);
    shared.is_exact[i] = p.segments[s].exact_flags[tile];
    if (shared.is_exact[i] != 0) shared.has_exact = 1;
    shared.tile[i] = tile;
  }
  return mine;
}

// Tiles in groups that fit into the ring, none larger than the one before.
struct Groups {
  u32 n, small, n_large;
  __device__ Groups(u32 n_tiles, u32 most) : n((n_tiles + most - 1) / most), small(n_tiles / n), n_large(n_tiles % n) {}
  __device__ u32 size(u32 group) const { return group >= n ? 0 : small + (group < n_large ? 1 : 0); }
};

// The order in which a warp passes over its units: for each group of tiles, each round in which it has a pair.
struct Passes {
  Groups groups;
  u32 n_rounds;
  u32 group = 0, first = 0, round = 0;  // first: tile of the group

  __device__ Passes(const Groups& g, u32 rounds) : groups(g), n_rounds(rounds) {}
  __device__ u32 tiles() const { return n_rounds == 0 ? 0 : groups.size(group); }
  __device__ void next() {
    if (++round < n_rounds) return;
    round = 0;
    first += groups.size(group++);
  }
};

}  // namespace nibble::kernels::cuda::nvfp4
