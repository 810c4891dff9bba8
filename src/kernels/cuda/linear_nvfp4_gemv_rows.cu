// NVFP4 weights times two to sixteen rows of activations; one row too, where nc1-f16 has tiles for the exact route.
//
// A thread block takes a few tiles of 16 weight rows at a time, and its warps share K: each runs every eighth step of a
// few pairs. The sums of blocks never leave the registers of the warp that made them: the lane that holds them runs the
// float steps of the contract itself, once the warp before has handed over the accumulators. So the chain passes
// through all warps, round after round, in the order of K, and each warp is a little behind the one before.
//
// A warp's weights, and the activations that they meet, arrive in a ring of its own.
#include <algorithm>

#include "kernels/cuda/linear_nvfp4_gemv_compute.cuh"

namespace nibble::kernels::cuda::nvfp4 {
namespace {

constexpr int kThreads = kWarps * kWarp, kBlocksPerMultiprocessor = 2;
constexpr int kRowPieces = kNvfp4Pair / 8;  // 16-byte pieces of a row of activations in a pair

// kTokens: 8 or 16. kTiles: at a time. kPairs: of a step of a warp, between two handovers. kAhead: pairs in a warp's
// ring.
template <int kTokens, int kTiles, int kPairs, int kAhead>
struct RowsShape {
  static constexpr int kColumnTiles = kTokens / kColumns;
  static constexpr int kPieces = 4 * kColumnTiles;          // 16-byte pieces of a pair's activations in a lane
  static constexpr int kWeightBytes = kTiles * kUnitBytes;  // of a pair
  static constexpr int kPairBytes = kWeightBytes + kTokens * kRowPieces * 16;
  static constexpr int kRingBytes = kAhead * kPairBytes;  // of a warp
};

template <int kTokens, int kTiles>
struct alignas(128) RowsShared {
  float4 acc[kTiles][kTokens / kColumns][kWarp];  // handed from warp to warp
  u64 handed[kWarps];                             // barriers: the accumulators are here for a warp
  const std::uint8_t* units[kMaxTiles];
  int tile[kMaxTiles];  // within its segment; -1: none, another one's units
  std::uint8_t segment[kMaxTiles];
  std::uint8_t is_exact[kMaxTiles];
  int has_exact;
};

// Groups of kTiles tiles of one segment each; those of this thread block are written down once.
template <int kTiles>
__host__ __device__ inline int groups_of(int n_tiles) {
  return (n_tiles + kTiles - 1) / kTiles;
}
template <int kTiles, typename Shared>
__device__ int list_groups(const Problem& p, bool only_exact, Shared& shared) {
  int n_groups = 0;
  for (int s = 0; s < p.n_segments; ++s) n_groups += groups_of<kTiles>(p.segments[s].n_tiles);
  const int first = blockIdx.x, step = gridDim.x;
  const int mine = n_groups > first ? (n_groups - first + step - 1) / step : 0;
  for (int i = threadIdx.x; i < mine * kTiles; i += kThreads) {
    int group = first + i / kTiles * step, s = 0;
    for (; group >= groups_of<kTiles>(p.segments[s].n_tiles); ++s) group -= groups_of<kTiles>(p.segments[s].n_tiles);
    const int index = group * kTiles + i % kTiles, last = p.segments[s].n_tiles - 1;
    int tile = min(index, last);
    if (only_exact) tile = p.segments[s].exact_list[tile];
    shared.units[i] = p.segments[s].units + static_cast<std::size_t>(tile) * p.n_pairs * kUnitBytes;
    shared.segment[i] = static_cast<std::uint8_t>(s);
    shared.is_exact[i] = p.segments[s].exact_flags[tile];
    if (shared.is_exact[i] != 0) shared.has_exact = 1;
    shared.tile[i] = index <= last ? tile : -1;
  }
  return mine;
}

template <typename Contract, int kTokens, int kTiles, int kPairs, int kAhead>
struct RowsWarp {
  using S = RowsShape<kTokens, kTiles, kPairs, kAhead>;
  using Shared = RowsShared<kTokens, kTiles>;
  static constexpr int kC = S::kColumnTiles;
  static_assert(kPairs % Contract::kPairs == 0, "a step has whole sums");
  static constexpr int kSums = 2 * kPairs / Contract::kBlocks;  // of a step, a tile and an output

  Shared& shared;
  const Problem& p;
  int warp, lane;
  u32 ring;    // of this warp
  u32 handed;  // barriers
  int n_groups;
  // Of this lane: 16-byte pieces of p.q and where they go within a slot; where its own lie there.
  u32 rows[kTokens / 2] = {};
  u32 activations_to = 0, activations_from[2] = {};

  __device__ RowsWarp(Shared& s, const Problem& problem, int w, int l, u32 ring_, u32 handed_, int groups)
      : shared(s), p(problem), warp(w), lane(l), ring(ring_), handed(handed_), n_groups(groups) {
    const u32 piece = lane % kRowPieces, row = lane / kRowPieces, m = lane / 4, quad = lane % 4;
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) {
      // Beyond the last row: that one again, computed and not written.
      const u32 from = min(static_cast<int>(blockIdx.y * kNvfp4GemvRows + row) + 2 * i, p.n_rows - 1);
      rows[i] = from * p.n_pairs * kRowPieces + piece;
    }
    activations_to = S::kWeightBytes + (row * kRowPieces + (piece ^ row % 2 * 4)) * 16;
#pragma unroll
    for (u32 i = 0; i < 2; ++i)
      activations_from[i] = S::kWeightBytes + (m * kRowPieces + ((i * 4 + quad) ^ m % 2 * 4)) * 16;
  }

  // A pair of the tiles of a group.
  struct Place {
    int group, pair;
  };
  __device__ Place first() const {
    return {0, warp * kPairs};
  }
  __device__ void next(Place& at) const {
    ++at.pair;
    if (at.pair % kPairs == 0) at.pair += (kWarps - 1) * kPairs;
    if (at.pair < p.n_pairs) return;
    at.pair = warp * kPairs;
    ++at.group;
  }

  __device__ void start_weights(const Place& at, u32 slot) const {
    if (at.group >= n_groups) return;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const u64 from = reinterpret_cast<u64>(shared.units[at.group * kTiles + t]) +
                       static_cast<u32>(at.pair * kUnitBytes + lane * 16);
      const u32 to = slot + t * kUnitBytes + lane * 16;
      copy_16_if(true, to, from);
      copy_16_if(true, to + 512, from + 512);
      copy_16_if(lane < (kUnitBytes - 1024) / 16, to + 1024, from + 1024);
    }
  }
  // Piece i of a row lies at i ^ row % 2 * 4, so that eight lanes that load meet no bank twice.
  __device__ void start_activations(const Place& at, u32 slot) const {
    if (at.group >= n_groups) return;
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) {
      copy_16_if(
          true, slot + activations_to + i * 2 * kRowPieces * 16,
          reinterpret_cast<u64>(p.q) + static_cast<u64>(rows[i]) * 16 + static_cast<u32>(at.pair * kRowPieces * 16));
    }
  }
  __device__ void load_activations(u32 slot, uint4 (&x)[S::kPieces]) const {
#pragma unroll
    for (int i = 0; i < S::kPieces; ++i) {  // i % 4 * 4 + quad, but for the places that odd rows trade
      x[i] = load_shared16(slot + activations_from[i % 2] + i / 4 * kColumns * kRowPieces * 16 + i % 4 / 2 * 128);
    }
  }

  // Factors of a step's sums for this lane's tokens; columns of rows that are not there get the last one's.
  using Factors = float[kSums][kC][2];
  __device__ void load_factors(int pair, Factors& c) const {
    const int column = blockIdx.y * kNvfp4GemvRows + lane % 4 * 2;
#pragma unroll
    for (int b = 0; b < kSums; ++b) {
      const int block = min(2 * pair + b * Contract::kBlocks, 2 * p.n_pairs - 1);
      const float* d = p.d + static_cast<std::size_t>(block) * p.d_stride;
#pragma unroll
      for (int i = 0; i < 2 * kC; ++i) c[b][i / 2][i % 2] = d[min(column + i / 2 * kColumns + i % 2, p.n_rows - 1)];
    }
  }
  // c = d * g, one rounding, in the unit of the sums unless one would overflow. Returns if one would. In nc1-f16 no
  // factor is rounded, and none would.
  __device__ bool scale_factors(float g, Factors& c) const {
    if constexpr (is_nc1_f16<Contract>) {
#pragma unroll
      for (int i = 0; i < 2 * kSums * kC; ++i) {
        float& factor = c[i / (2 * kC)][i / 2 % kC][i % 2];
        factor = Contract::factor(factor, kSumUnit);
      }
      return false;
    }
    constexpr float kLargest = 0x1p127f / kSumUnit;
    bool is_wide = false;
#pragma unroll
    for (int i = 0; i < 2 * kSums * kC; ++i) {
      float& factor = c[i / (2 * kC)][i / 2 % kC][i % 2];
      factor *= g;
      is_wide |= !(factor < kLargest);
    }
    is_wide = __any_sync(kAllLanes, is_wide);
    if (!is_wide) {
#pragma unroll
      for (int i = 0; i < 2 * kSums * kC; ++i) c[i / (2 * kC)][i / 2 % kC][i % 2] *= kSumUnit;
    }
    return is_wide;
  }

  using Sums = float[kTiles][kSums][kC][4];
  template <bool kWide>
  static __device__ float chain(float sum, float c, float scale, float acc) {
    if constexpr (is_nc1_f16<Contract>) return Contract::add(acc, sum, c, scale);
    return __fmaf_rn(kWide ? sum * kSumUnit : sum, c, acc);
  }
  template <bool kWide>
  static __device__ void run_chain(const Sums& sums, const Factors& c, float scale, int n_pairs,
                                   float4 (&acc)[kTiles][kC]) {
#pragma unroll
    for (int b = 0; b < kSums; ++b) {
      if (b * Contract::kBlocks / 2 >= n_pairs) break;
#pragma unroll
      for (int i = 0; i < kTiles * kC; ++i) {
        const int t = i / kC, j = i % kC;
        acc[t][j].x = chain<kWide>(sums[t][b][j][0], c[b][j][0], scale, acc[t][j].x);
        acc[t][j].y = chain<kWide>(sums[t][b][j][1], c[b][j][1], scale, acc[t][j].y);
        acc[t][j].z = chain<kWide>(sums[t][b][j][2], c[b][j][0], scale, acc[t][j].z);
        acc[t][j].w = chain<kWide>(sums[t][b][j][3], c[b][j][1], scale, acc[t][j].w);
      }
    }
  }

  __device__ void write(int index, const float4 (&acc)[kC]) const {
    if (shared.tile[index] < 0) return;
    const Segment& segment = p.segments[shared.segment[index]];
    const int row = shared.tile[index] * kTileRows + tile_row(lane / 4);
    const int column = blockIdx.y * kNvfp4GemvRows + lane % 4 * 2;
    const auto put = [&](int token, int at, float value) {
      if (token >= p.n_rows || at >= segment.n_out) return;
      if constexpr (is_nc1_f16<Contract>) value = Contract::finish(value);
      segment.out[static_cast<std::size_t>(token) * segment.out_stride + at] =
          segment.bias != nullptr ? value + segment.bias[at] : value;
    };
#pragma unroll
    for (int j = 0; j < kC; ++j) {
      put(column + j * kColumns, row, acc[j].x);
      put(column + j * kColumns + 1, row, acc[j].y);
      put(column + j * kColumns, row + kLaneRows, acc[j].z);
      put(column + j * kColumns + 1, row + kLaneRows, acc[j].w);
    }
  }

  // Sums of a step's blocks. Every pair that is read makes room for one further on.
  template <bool kMixed>
  __device__ void multiply_step(const Place& at, Place& ahead, u32& slot, Sums& sums) const {
    // Of nc1-f16: exact sums of tiles that f32 does not hold, rounded when all of a super-block is in.
    constexpr bool kHasTotals = kMixed && is_nc1_f16<Contract>;
    [[maybe_unused]] double totals[kHasTotals ? kTiles : 1][kSums][kC][4] = {};
#pragma unroll
    for (int u = 0; u < kPairs; ++u) {
      if (u > 0 && at.pair + u >= p.n_pairs) continue;
      wait_copies<kAhead - 1>();
      __syncwarp();  // the copies of all lanes have landed
      uint4 x[S::kPieces];
      load_activations(slot, x);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const Words words = load_words<false>(slot + t * kUnitBytes, lane);
        if (t + 1 == kTiles) {
          __syncwarp();  // all is read
          start_weights(ahead, slot);
          start_activations(ahead, slot);
          commit_copies();  // perhaps of nothing, so that groups can be counted
          next(ahead);
          slot = slot + S::kPairBytes == ring + S::kRingBytes ? ring : slot + S::kPairBytes;
        }
        const u32 scales[2][2] = {{words.scales.x, words.scales.y}, {words.scales.z, words.scales.w}};
#pragma unroll
        for (int block = 0; block < 2; ++block) {
          constexpr int kBlocks = Contract::kBlocks;
          float(&d)[kC][4] = sums[t][(2 * u + block) / kBlocks];
          if (kMixed && shared.is_exact[at.group * kTiles + t] != 0) {
            if constexpr (kHasTotals) {
              add_block_exactly<kC>(words.w[block], scales[block][0], scales[block][1], x, block,
                                    totals[t][(2 * u + block) / kBlocks]);
            } else {
              multiply_block_exactly<kC>(words.w[block], scales[block][0], scales[block][1], x, block, d);
            }
          } else {
            multiply_block<kC>(words.w[block], scales[block][0], scales[block][1], x, block, d);
          }
        }
      }
    }
    if constexpr (kHasTotals) round_totals(at, totals, sums);
  }
  __device__ void round_totals(const Place& at, const double (&totals)[kTiles][kSums][kC][4], Sums& sums) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (shared.is_exact[at.group * kTiles + t] == 0) continue;
#pragma unroll
      for (int i = 0; i < kSums * kC * 4; ++i) (&sums[t][0][0][0])[i] = static_cast<float>((&totals[t][0][0][0])[i]);
    }
  }

  template <bool kMixed>
  __device__ void run() const {
    if (warp * kPairs >= p.n_pairs) return;
    Place ahead = first();
#pragma unroll
    for (int i = 0; i < kAhead; ++i, next(ahead)) start_weights(ahead, ring + i * S::kPairBytes);
    wait_for_predecessors();
    ahead = first();
#pragma unroll
    for (int i = 0; i < kAhead; ++i, next(ahead)) {
      start_activations(ahead, ring + i * S::kPairBytes);
      commit_copies();
    }
    u32 slot = ring;
    bool is_first = true;
    Place at = first();
    for (u32 use = 0; at.group < n_groups; ++use) {
      Factors c;
      load_factors(at.pair, c);
      Sums sums = {};
      multiply_step<kMixed>(at, ahead, slot, sums);
      const float scale = p.segments[shared.segment[at.group * kTiles]].scale;
      const bool is_wide = scale_factors(scale, c);
      const bool begins = at.pair == 0, ends = at.pair + kPairs >= p.n_pairs;

      // Warp 0 waits for the end of the group before, since there is one place for accumulators.
      if (!is_first || warp != 0) barrier_wait(handed + warp * 8, (warp == 0 ? use - 1 : use) & 1);
      is_first = false;
      float4 acc[kTiles][kC];
#pragma unroll
      for (int i = 0; i < kTiles * kC; ++i) {
        acc[i / kC][i % kC] = begins ? make_float4(0, 0, 0, 0) : shared.acc[i / kC][i % kC][lane];
      }
      if (is_wide) {
        run_chain<true>(sums, c, scale, p.n_pairs - at.pair, acc);
      } else {
        run_chain<false>(sums, c, scale, p.n_pairs - at.pair, acc);
      }
      if (!ends) {
#pragma unroll
        for (int i = 0; i < kTiles * kC; ++i) shared.acc[i / kC][i % kC][lane] = acc[i / kC][i % kC];
      }
      __syncwarp();  // all lanes have seen the barrier, and written
      if (lane == 0) barrier_arrive(handed + (ends || warp + 1 == kWarps ? 0 : warp + 1) * 8);
      if (ends) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) write(at.group * kTiles + t, acc[t]);
      }
      at.pair += kWarps * kPairs;
      if (at.pair >= p.n_pairs) at = {at.group + 1, warp * kPairs};
    }
    wait_copies<0>();
  }
};

template <typename Contract, int kTokens, int kTiles, int kPairs, int kAhead>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    gemv_rows_kernel(const __grid_constant__ Problem p, bool only_exact) {
  using S = RowsShape<kTokens, kTiles, kPairs, kAhead>;
  using Shared = RowsShared<kTokens, kTiles>;
  NIBBLE_DYNAMIC_SHARED(std::uint8_t, memory, 128);
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  keep(warp);
  keep(lane);
  let_successors_start();
  const u32 base = shared_address(&shared), handed = base + static_cast<u32>(offsetof(Shared, handed));
  if (threadIdx.x < kWarps) barrier_init(handed + threadIdx.x * 8, 1);
  if (threadIdx.x == 0) shared.has_exact = 0;
  __syncthreads();
  const int n_groups = list_groups<kTiles>(p, only_exact, shared);
  __syncthreads();
  const u32 ring = base + static_cast<u32>(sizeof(Shared)) + warp * S::kRingBytes;
  const RowsWarp<Contract, kTokens, kTiles, kPairs, kAhead> w(shared, p, warp, lane, ring, handed, n_groups);
  if (shared.has_exact != 0) {
    w.template run<true>();
  } else {
    w.template run<false>();
  }
}

template <typename Contract, int kTokens, int kTiles, int kPairs, int kAhead>
cudaError_t launch(const Problem& p, const Device& device, bool only_exact, cudaStream_t stream) {
  using S = RowsShape<kTokens, kTiles, kPairs, kAhead>;
  int n_groups = 0;
  for (int s = 0; s < p.n_segments; ++s) n_groups += groups_of<kTiles>(p.segments[s].n_tiles);
  constexpr int kMostGroups = kMaxTiles / kTiles;  // of a thread block
  const int grid = std::max(std::min(n_groups, kBlocksPerMultiprocessor * device.n_multiprocessors),
                            (n_groups + kMostGroups - 1) / kMostGroups);
  LaunchShape shape;
  shape.grid = dim3(grid, (p.n_rows + kNvfp4GemvRows - 1) / kNvfp4GemvRows);
  shape.block = kThreads;
  int bytes = sizeof(RowsShared<kTokens, kTiles>) + kWarps * S::kRingBytes;
  if (p.is_spread && grid <= device.n_multiprocessors) bytes = std::max(bytes, device.shared_bytes / 2 + 1);
  shape.shared_bytes = bytes;
  shape.starts_early = true;
  return launch_kernel(gemv_rows_kernel<Contract, kTokens, kTiles, kPairs, kAhead>, shape, stream, p, only_exact);
}

}  // namespace

// Where a thread block has one tile, that one's chain is what takes long: warps run four pairs between two handovers,
// unless there are so few that half of the warps would have none. Where there is much of everything, activations are
// read once for four tiles. In nc1-f16 a step has at least two pairs.
template <typename Contract>
cudaError_t launch_gemv_rows(const Problem& p, const Device& device, bool only_exact, cudaStream_t stream) {
  constexpr int kLargeRings = 110 << 10;  // bytes of shared memory; some GPUs have 99 KB
  int n_tiles = 0;
  for (int s = 0; s < p.n_segments; ++s) n_tiles += p.segments[s].n_tiles;
  const bool one_each = n_tiles <= kBlocksPerMultiprocessor * device.n_multiprocessors;
  const bool is_much = n_tiles >= 10 * device.n_multiprocessors, is_small = device.shared_bytes < kLargeRings;
  constexpr int kFew = Contract::kPairs;
  if (p.n_rows > kColumns) {
    if (one_each || is_small) return launch<Contract, 16, 1, 2, 2>(p, device, only_exact, stream);
    return launch<Contract, 16, 2, kFew, 2>(p, device, only_exact, stream);
  }
  if (is_small) return launch<Contract, 8, 2, 2, 2>(p, device, only_exact, stream);
  if (one_each && p.n_pairs <= 2 * kWarps) return launch<Contract, 8, 1, 2, 4>(p, device, only_exact, stream);
  if (one_each) return launch<Contract, 8, 1, 4, 4>(p, device, only_exact, stream);
  if (is_much) return launch<Contract, 8, 4, kFew, 2>(p, device, only_exact, stream);
  return launch<Contract, 8, 2, 2, 3>(p, device, only_exact, stream);
}
template cudaError_t launch_gemv_rows<Nc1>(const Problem&, const Device&, bool, cudaStream_t);
template cudaError_t launch_gemv_rows<Nc1F16>(const Problem&, const Device&, bool, cudaStream_t);

}  // namespace nibble::kernels::cuda::nvfp4
