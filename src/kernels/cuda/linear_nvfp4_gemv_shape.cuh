// What the warps of the NVFP4 gemv agree on: its shape, its shared memory, the tiles of a block of threads and their
// order.
#pragma once

#include "kernels/cuda/linear_nvfp4_launch.h"

namespace nibble::kernels::cuda::nvfp4 {

constexpr int kMaxTiles = 128;   // of a block of threads
constexpr int kGroupTiles = 16;  // at most, between two passes over K
constexpr int kColumns = 8;      // of the matrix instruction
constexpr int kMaxStages = 12;   // of the ring

// kTokens: 1, 8 or 16. kWarps: that compute, and share K.
template <int kTokens, int kWarps>
struct Shape {
  static constexpr int kColumnTiles = kTokens == 16 ? 2 : 1;
  static constexpr int kPassRows = kTokens == 8 ? 8 : kNvfp4GemvRows;  // from one blockIdx.y to the next
  static constexpr int kUnits = kTokens == 1 ? 2 : 1;                  // that a warp multiplies at a time
  static constexpr int kChains = kTokens == 1 ? 2 : 4;  // warps that run the fma per block; each has its tiles
  static constexpr int kThreads = (kWarps + kChains + 1) * kWarp;
  // The second one prefetches for the next launch, or computes for this one.
  static constexpr int kBlocksPerMultiprocessor = kTokens == 1 && kWarps == 8 ? 2 : 1;
  static constexpr int kRoundBlocks = 2 * kWarps;
  static constexpr float kSumUnit = kTokens == 1 ? 0x1p33f : nvfp4::kSumUnit;
  // A warp writes the sums of a unit over the unit: [2 blocks, column tiles, 16, 8], or for one token [16, 2 blocks].
  // Rows are in the order of the matrix instruction.
  static constexpr int kBlockSums = kTileRows * kColumns * kColumnTiles;
  static constexpr int kSlotBytes = kTokens == 16 ? 2 * kBlockSums * 4 : kUnitBytes;
  static constexpr int kStageBytes = kWarps * kSlotBytes;
  // A warp of the chain waits for a stage of its own at least every 2 * kChains - 1 steps. With no fewer stages than
  // that it never looks at a barrier that is a phase behind, which it could not tell from one that has completed.
  static constexpr int kMinStages = 2 * kChains - 1;
};

// What lies behind it in shared memory: the ring [stages, kWarps, kSlotBytes], as large as the GPU allows. A stage
// holds the pairs of a round of one tile, first the weights, then the sums.
template <int kTokens, int kWarps>
struct alignas(128) Shared {
  using S = Shape<kTokens, kWarps>;
  alignas(16) float acc[kGroupTiles][kTileRows * kTokens];  // of the chain between rounds
  alignas(16) float factors[S::kChains][kNvfp4MaxSegments][S::kRoundBlocks][kTokens];
  const std::uint8_t* units[kMaxTiles];  // of each tile
  std::uint8_t segment[kMaxTiles];
  std::uint8_t is_exact[kMaxTiles];
  int tile[kMaxTiles];                                              // within its segment
  u64 loaded[kMaxStages], summed[kMaxStages], drained[kMaxStages];  // barriers of each stage
};

// Tiles of this block of threads, written down once. Returns their number; *has_exact: some of them is exact.
template <int kTokens, int kWarps>
__device__ int list_tiles(const Problem& p, bool only_exact, Shared<kTokens, kWarps>& shared, bool* has_exact) {
  int n_tiles = 0;
  for (int s = 0; s < p.n_segments; ++s) n_tiles += p.segments[s].n_tiles;
  const int first = blockIdx.x, step = gridDim.x;
  const int mine = n_tiles > first ? (n_tiles - first + step - 1) / step : 0;
  *has_exact = false;
  for (int i = threadIdx.x; i < mine; i += Shape<kTokens, kWarps>::kThreads) {
    int tile = first + i * step, s = 0;
    for (; tile >= p.segments[s].n_tiles; ++s) tile -= p.segments[s].n_tiles;
    const Segment& segment = p.segments[s];
    if (only_exact) tile = segment.exact_list[tile];
    shared.units[i] = segment.units + static_cast<std::size_t>(tile) * p.n_pairs * kUnitBytes;
    shared.segment[i] = static_cast<std::uint8_t>(s);
    shared.tile[i] = tile;
    const bool is_exact = segment.n_exact_tiles != 0 && segment.exact_flags[tile] != 0;
    shared.is_exact[i] = is_exact;
    *has_exact |= is_exact;
  }
  return mine;
}

// Tiles in groups whose sums between rounds fit into shared memory, none larger than the one before.
struct Groups {
  u32 n, small, n_large;
  __device__ explicit Groups(u32 n_tiles)
      : n((n_tiles + kGroupTiles - 1) / kGroupTiles), small(n_tiles / n), n_large(n_tiles % n) {}
  __device__ u32 size(u32 group) const { return group >= n ? 0 : small + (group < n_large ? 1 : 0); }
};

// The order of the work: for each group of tiles, for each round of kWarps pairs, each tile.
struct Step {
  u32 group = 0, first = 0, round = 0, tile = 0;  // first: of the group; tile: in the group
  u32 n_tiles;                                    // of the group, 0 after the last one

  __device__ explicit Step(const Groups& groups) : n_tiles(groups.size(0)) {}
  __device__ void next(const Groups& groups, u32 n_rounds) {
    if (++tile < n_tiles) return;
    tile = 0;
    if (++round < n_rounds) return;
    round = 0;
    first += n_tiles;
    n_tiles = groups.size(++group);
  }
};

// A place in the ring, as everybody passes through it.
template <int kTokens, int kWarps>
struct Place {
  using M = Shared<kTokens, kWarps>;
  u32 slot;    // address of the stage, and whatever the user adds
  u32 loaded;  // barrier
  u32 parity = 0;

  __device__ Place(u32 base, u32 offset)
      : slot(base + static_cast<u32>(sizeof(M)) + offset), loaded(base + static_cast<u32>(offsetof(M, loaded))) {}
  __device__ u32 summed() const { return loaded + kMaxStages * 8; }
  __device__ u32 drained() const { return loaded + 2 * kMaxStages * 8; }
  // end: of the barriers in use.
  __device__ void next(u32 end, u32 stages) {
    slot += Shape<kTokens, kWarps>::kStageBytes;
    loaded += 8;
    if (loaded == end) turn_around(stages);
  }
  __device__ void skip(u32 end, u32 stages, u32 n) {
    slot += n * Shape<kTokens, kWarps>::kStageBytes;
    loaded += n * 8;
    while (loaded >= end) turn_around(stages);
  }
  __device__ void turn_around(u32 stages) {
    slot -= stages * Shape<kTokens, kWarps>::kStageBytes;
    loaded -= stages * 8;
    parity ^= 1;
  }
};

}  // namespace nibble::kernels::cuda::nvfp4
