// NVFP4 weights times many rows of activations, on Hopper's wgmma.
//
// A block of threads makes 128 tokens x 144 or 192 weight rows, and goes on to the next such tile. Tokens are the rows
// of the instruction, so that the factor c of a block is one number per thread and row. One warpgroup produces: a warp
// copies tokens and packed weights, three decode weights, scales folded in, to swizzled shared memory. Two warpgroups
// consume: each sums a block of 64 from zero on the tensor core, for 64 tokens of the tile, then runs one fma per
// output while the tensor core works for the other. They take strict turns; left alone they fall into step and the
// tensor core waits.
#include <cuda.h>

#include <algorithm>

#include "kernels/cuda/linear_nvfp4_launch.h"
#include "kernels/cuda/wgmma_sm90.cuh"

namespace nibble::kernels::cuda::nvfp4 {
namespace {

constexpr int kWarpgroup = 128;
constexpr int kConsumers = 2;
constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
constexpr int kDecoders = 3;  // warps
constexpr int kTokens = kConsumers * 64;
constexpr int kStages = 4;
constexpr int kRingPairs = 3;                      // of weights as they come from memory
[[maybe_unused]] constexpr int kRasterGroups = 8;  // of rows that go through the tokens together, for the L2 cache
constexpr int kRowBytes = kBlock * 2;              // of f16 in shared memory: the width of the 128-byte swizzle
constexpr int kTokenBytes = kTokens * kRowBytes;
[[maybe_unused]] constexpr int kFactorBytes = kTokens * static_cast<int>(sizeof(float));
// Together the registers of the launch.
[[maybe_unused]] constexpr int kProducerRegisters = 72, kConsumerRegisters = 216;
[[maybe_unused]] constexpr int kTurnBarrier = 1;  // named barriers of the consumers' turns: this one and the next

// kTiles: row tiles of 16, 9 or 12.
template <int kTiles>
struct Shared {
  static constexpr int kWeightBytes = kTiles * kTileRows * kRowBytes;
  alignas(1024) std::uint8_t tokens[kStages][kTokenBytes];
  alignas(1024) std::uint8_t weights[kStages][kWeightBytes];
  alignas(128) std::uint8_t ring[kRingPairs][kTiles][kUnitBytes];
  alignas(16) float d[kStages][kTokens];
  u64 full[kStages], empty[kStages], ring_full[kRingPairs], ring_empty[kRingPairs];
};
// Addresses in shared memory, from a base that every thread keeps.
#define NIBBLE_AT(base, field) ((base) + static_cast<u32>(offsetof(Shared<kTiles>, field)))

// A place in a ring of buffers with barriers: its index and the parity of its phase.
template <int kSize>
struct Turn {
  u32 index = 0, parity = 0;
  __device__ void next() {
    if (++index < kSize) return;
    index = 0;
    parity ^= 1;
  }
};

// A tile of the output: rows of one segment, and tokens.
struct OutputTile {
  int segment;
  int first_tile;  // of 16 rows
  int first_token;
};
template <int kTiles>
struct Schedule {
  int n_groups = 0, n_token_tiles;

  __device__ explicit Schedule(const Problem& p) : n_token_tiles((p.n_rows + kTokens - 1) / kTokens) {
    for (int s = 0; s < p.n_segments; ++s) n_groups += (p.segments[s].n_tiles + kTiles - 1) / kTiles;
  }
  __device__ int size() const { return n_groups * n_token_tiles; }
  __device__ OutputTile at(const Problem& p, int index) const {
    const int per_raster = kRasterGroups * n_token_tiles, raster = index / per_raster, rest = index % per_raster;
    const int groups = min(kRasterGroups, n_groups - raster * kRasterGroups);
    int group = raster * kRasterGroups + rest % groups, s = 0;
    for (;; ++s) {
      const int of_segment = (p.segments[s].n_tiles + kTiles - 1) / kTiles;
      if (group < of_segment) break;
      group -= of_segment;
    }
    return {s, group * kTiles, rest / groups * kTokens};
  }
};

// The warp that copies: packed weights kRingPairs - 1 pairs ahead, tokens as soon as a stage is empty.
template <int kTiles>
struct Copier {
  const Problem& p;
  const CUtensorMap* map;
  const Schedule<kTiles>& schedule;
  u32 base;
  int lane;

  // The pair to copy next; lane i has the address of row tile i.
  struct Weights {
    int index;  // of the output tile
    int pair = 0;
    const std::uint8_t* unit = nullptr;
    Turn<kRingPairs> turn;
  };
  __device__ void find(Weights& w) const {
    if (w.index >= schedule.size()) return;
    const OutputTile tile = schedule.at(p, w.index);
    const Segment& segment = p.segments[tile.segment];
    // Beyond the last one: computed, not written.
    const int row_tile = min(tile.first_tile + min(lane, kTiles - 1), segment.n_tiles - 1);
    w.unit = segment.units + static_cast<std::size_t>(row_tile) * p.n_pairs * kUnitBytes;
  }
  __device__ void copy_pair(Weights& w) const {
    if (w.index >= schedule.size()) return;
    const u32 full = NIBBLE_AT(base, ring_full) + w.turn.index * 8;
    barrier_wait(NIBBLE_AT(base, ring_empty) + w.turn.index * 8, w.turn.parity ^ 1);
    if (lane == 0) barrier_expect(full, kTiles * kUnitBytes);
    __syncwarp();
    if (lane < kTiles) {
      copy_bulk(NIBBLE_AT(base, ring) + (w.turn.index * kTiles + lane) * kUnitBytes, w.unit, kUnitBytes, full);
    }
    w.turn.next();
    w.unit += kUnitBytes;
    if (++w.pair < p.n_pairs) return;
    w.pair = 0;
    w.index += gridDim.x;
    find(w);
  }

  __device__ void run() const {
    Weights weights = {static_cast<int>(blockIdx.x)};
    find(weights);
    for (int i = 0; i < kRingPairs - 1; ++i) copy_pair(weights);
    wait_for_predecessors();
    Turn<kStages> stage;
    for (int index = blockIdx.x; index < schedule.size(); index += gridDim.x) {
      const int first_token = schedule.at(p, index).first_token;
      const float* d = p.d + first_token;
      for (int block = 0; block < 2 * p.n_pairs; ++block) {
        if (block % 2 == 0) copy_pair(weights);
        barrier_wait(NIBBLE_AT(base, empty) + stage.index * 8, stage.parity ^ 1);
        if (lane == 0) {
          const u32 full = NIBBLE_AT(base, full) + stage.index * 8;
          barrier_expect(full, kTokenBytes + kFactorBytes);
          copy_tensor(NIBBLE_AT(base, tokens) + stage.index * kTokenBytes, map, block * kBlock, first_token, full);
          copy_bulk(NIBBLE_AT(base, d) + stage.index * kFactorBytes, d, kFactorBytes, full);
        }
        __syncwarp();
        d += p.d_stride;
        stage.next();
      }
    }
  }
};

// A warp that decodes its row tiles of every block. It loads the words of a block while it stores the block before.
template <int kTiles>
struct Decoder {
  static constexpr int kWarpTiles = kTiles / kDecoders;
  const Problem& p;
  const Schedule<kTiles>& schedule;
  u32 base;
  int first_tile, lane;

  struct Words {
    uint4 codes[kWarpTiles];
    u64 scales[kWarpTiles];
  };
  __device__ void load(u32 units, u32 block, Words& w) const {
#pragma unroll
    for (int i = 0; i < kWarpTiles; ++i) {
      w.codes[i] = load_shared16(units + i * kUnitBytes + block * kBlockCodeBytes + lane * 16);
      w.scales[i] = load_shared8(units + i * kUnitBytes + kUnitCodeBytes + lane / 4 * 16 + block * 8);
    }
  }
  // To rows of shared memory: 16-byte piece i of row r lies at i ^ r % 8.
  static __device__ void store(const Words& w, const u32 (&to)[2][2]) {
#pragma unroll
    for (int i = 0; i < kWarpTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const u32 s = static_cast<u32>(half == 0 ? w.scales[i] : w.scales[i] >> 32);
        u32 a[4], b[4];
        decode(half == 0 ? w.codes[i].x : w.codes[i].z, a);
        decode(half == 0 ? w.codes[i].y : w.codes[i].w, b);
        fold_scales(a, scale_pair<0>(s), scale_pair<2>(s));
        fold_scales(b, scale_pair<0>(s), scale_pair<2>(s));
        constexpr int kTileBytes = kTileRows * kRowBytes;
        store_shared16(to[half][0] + i * kTileBytes, a[0], a[2], b[0], b[2]);
        store_shared16(to[half][1] + i * kTileBytes, a[1], a[3], b[1], b[3]);
      }
    }
  }

  __device__ void run() const {
    u32 pieces[2][2];  // [half of the block][row of the lane]
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      const u32 row = shared_row(tile_row(lane / 4 + i % 2 * 8)), piece = i / 2 * 4 + lane % 4;
      pieces[i / 2][i % 2] =
          NIBBLE_AT(base, weights) + (first_tile * kTileRows + row) * kRowBytes + (piece ^ row % 8) * 16;
      keep(pieces[i / 2][i % 2]);
    }
    u32 units = NIBBLE_AT(base, ring) + first_tile * kUnitBytes;
    keep(units);
    const int n_tiles =
        schedule.size() > static_cast<int>(blockIdx.x) ? (schedule.size() - blockIdx.x - 1) / gridDim.x + 1 : 0;
    int pairs_left = n_tiles * p.n_pairs;
    if (pairs_left == 0) return;
    Turn<kStages> stage;
    Turn<kRingPairs> pair;
    Words words;
    barrier_wait(NIBBLE_AT(base, ring_full), 0);
    load(units, 0, words);
    for (; pairs_left > 0; --pairs_left) {
#pragma unroll
      for (u32 block = 0; block < 2; ++block) {
        const u32 offset = stage.index * Shared<kTiles>::kWeightBytes;
        const u32 to[2][2] = {{pieces[0][0] + offset, pieces[0][1] + offset},
                              {pieces[1][0] + offset, pieces[1][1] + offset}};
        barrier_wait(NIBBLE_AT(base, empty) + stage.index * 8, stage.parity ^ 1);
        store(words, to);
        if (block == 0) {
          load(units + pair.index * kTiles * kUnitBytes, 1, words);
        } else {
          __syncwarp();  // every lane has used what it read of this pair
          if (lane == 0) barrier_arrive(NIBBLE_AT(base, ring_empty) + pair.index * 8);
          pair.next();
          if (pairs_left > 1) {
            barrier_wait(NIBBLE_AT(base, ring_full) + pair.index * 8, pair.parity);
            load(units + pair.index * kTiles * kUnitBytes, 0, words);
          }
        }
        fence_async_proxy();
        __syncwarp();
        if (lane == 0) barrier_arrive(NIBBLE_AT(base, full) + stage.index * 8);
        stage.next();
      }
    }
  }
};

template <int kTiles>
struct Consumer {
  static constexpr int kColumns = kTiles * kTileRows;
  static constexpr int kValues = kColumns / 2;  // of a thread
  const Problem& p;
  const Schedule<kTiles>& schedule;
  u32 base;
  int turn, thread;  // which of the two warpgroups; in it

  // acc = fma(f32(S), c, acc): this thread has two tokens.
  __device__ void promote(float (&sums)[kValues], float d0, float d1, float g, float (&acc)[kValues]) const {
    constexpr float kLargest = 0x1p110f;
    float c0 = d0 * g, c1 = d1 * g;
    if (c0 < kLargest && c1 < kLargest) {
      c0 *= kSumUnit;
      c1 *= kSumUnit;
    } else {  // factors too large to take up the unit of the sums: the sums take it
#pragma unroll
      for (int i = 0; i < kValues; ++i) sums[i] *= kSumUnit;
    }
#pragma unroll
    for (int i = 0; i < kValues; ++i) acc[i] = __fmaf_rn(sums[i], i % 4 < 2 ? c0 : c1, acc[i]);
  }

  // Four neighbouring rows of the j-th row tile, for the thread's token `half`.
  static __device__ float4 outputs(const float (&acc)[kValues], int j, int half) {
    return make_float4(acc[j * 8 + half * 2], acc[j * 8 + half * 2 + 1], acc[j * 8 + 4 + half * 2],
                       acc[j * 8 + 5 + half * 2]);
  }
  __device__ void write(const OutputTile& tile, const float (&acc)[kValues]) const {
    const Segment& segment = p.segments[tile.segment];
    const int token = tile.first_token + turn * 64 + thread / 32 * 16 + thread % 32 / 4;
    const int first = tile.first_tile * kTileRows + thread % 4 * 4;
    const bool is_simple = tile.first_tile * kTileRows + kColumns <= segment.n_out && segment.bias == nullptr &&
                           segment.out_stride % 4 == 0 && reinterpret_cast<u64>(segment.out) % 16 == 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (token + half * 8 >= p.n_rows) continue;
      float* out = segment.out + static_cast<std::size_t>(token + half * 8) * segment.out_stride + first;
      if (is_simple) {
#pragma unroll
        for (int j = 0; j < kTiles; ++j) *reinterpret_cast<float4*>(out + j * kTileRows) = outputs(acc, j, half);
      } else {
#pragma unroll
        for (int j = 0; j < kTiles; ++j)
          write_some(segment, first + j * kTileRows, out + j * kTileRows, outputs(acc, j, half));
      }
    }
  }
  static __device__ __attribute__((noinline)) void write_some(const Segment& segment, int row, float* out,
                                                              float4 values) {
    const float v[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (row + i < segment.n_out) out[i] = segment.bias != nullptr ? v[i] + segment.bias[row + i] : v[i];
    }
  }

  __device__ void run() const {
    wait_for_predecessors();
    const u32 row = turn * 64 + thread / 32 * 16 + thread % 32 / 4;  // of the tile
    const u64 a_first = matrix_descriptor(NIBBLE_AT(base, tokens) + turn * 64 * kRowBytes);
    const u64 b_first = matrix_descriptor(NIBBLE_AT(base, weights));
    if (turn == 1) named_arrive(kTurnBarrier, kConsumers * kWarpgroup);
    Turn<kStages> stage;
    for (int index = blockIdx.x; index < schedule.size(); index += gridDim.x) {
      const OutputTile tile = schedule.at(p, index);
      const float g = p.segments[tile.segment].g;
      float acc[kValues], sums[kValues];
#pragma unroll
      for (int i = 0; i < kValues; ++i) acc[i] = 0;
      for (int block = 0; block < 2 * p.n_pairs; ++block) {
        const u64 a = a_first + stage.index * (kTokenBytes / 16);
        const u64 b = b_first + stage.index * (Shared<kTiles>::kWeightBytes / 16);
        const u32 d = NIBBLE_AT(base, d) + stage.index * kFactorBytes + row * 4;
        barrier_wait(NIBBLE_AT(base, full) + stage.index * 8, stage.parity);
        const float d0 = __uint_as_float(load_shared4(d)), d1 = __uint_as_float(load_shared4(d + 32));
        named_sync(kTurnBarrier + turn, kConsumers * kWarpgroup);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          Wgmma<kColumns>::multiply(sums, a + step * 2, b + step * 2, step > 0);
          if (step % 2 == 1) wgmma_commit();
        }
        // The other warpgroup may queue its own when half of these are done: the tensor core never runs dry.
        wgmma_wait<1>();
        named_arrive(kTurnBarrier + 1 - turn, kConsumers * kWarpgroup);
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < kValues; ++i) wgmma_keep(sums[i]);
        if (thread % kWarp == 0) barrier_arrive(NIBBLE_AT(base, empty) + stage.index * 8);
        promote(sums, d0, d1, g, acc);
        stage.next();
      }
      write(tile, acc);
    }
    if (turn == 0) named_sync(kTurnBarrier, kConsumers * kWarpgroup);  // the arrival that nobody waits for
  }
};

template <int kTiles>
__global__ void __launch_bounds__(kThreads, 1)
    gemm_wgmma_kernel(const __grid_constant__ Problem p, const __grid_constant__ CUtensorMap map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  NIBBLE_DYNAMIC_SHARED(std::uint8_t, memory, 1024);
  u32 base = shared_address(memory);
  keep(base);
  let_successors_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(NIBBLE_AT(base, full) + i * 8, 1 + kDecoders);
      barrier_init(NIBBLE_AT(base, empty) + i * 8, kConsumers * kWarpgroup / kWarp);
    }
    for (int i = 0; i < kRingPairs; ++i) {
      barrier_init(NIBBLE_AT(base, ring_full) + i * 8, 1);
      barrier_init(NIBBLE_AT(base, ring_empty) + i * 8, kDecoders);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const Schedule<kTiles> schedule(p);
  const int warpgroup = threadIdx.x / kWarpgroup, thread = threadIdx.x % kWarpgroup;
  if (warpgroup == 0) {
    lower_registers<kProducerRegisters>();
    const int warp = thread / kWarp, lane = thread % kWarp;
    if (warp == 0) {
      Copier<kTiles>{p, &map, schedule, base, lane}.run();
    } else {
      Decoder<kTiles>{p, schedule, base, (warp - 1) * (kTiles / kDecoders), lane}.run();
    }
  } else {
    raise_registers<kConsumerRegisters>();
    Consumer<kTiles>{p, schedule, base, warpgroup - 1, thread}.run();
  }
#else
  __trap();  // compiled for a GPU without wgmma: sm_90 instead of sm_90a, say
#endif
}

// The matrix of activations for TMA: rows of f16, boxes of one block by the tokens of a tile, zeros beyond the last
// row.
cudaError_t describe_tokens(const Problem& p, CUtensorMap* map) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
  if (error != cudaSuccess) return error;
  if (found != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  const cuuint64_t extents[2] = {static_cast<cuuint64_t>(p.n_pairs) * kNvfp4Pair, static_cast<cuuint64_t>(p.n_rows)};
  const cuuint64_t strides[1] = {extents[0] * sizeof(__half)};
  const cuuint32_t box[2] = {kBlock, kTokens}, steps[2] = {1, 1};
  const CUresult result = encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<__half*>(p.q), extents, strides,
                                 box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

template <int kTiles>
int count_tiles(const Problem& p) {
  int groups = 0;
  for (int s = 0; s < p.n_segments; ++s) groups += (p.segments[s].n_tiles + kTiles - 1) / kTiles;
  return groups * ((p.n_rows + kTokens - 1) / kTokens);
}

template <int kTiles>
cudaError_t launch(const Problem& p, const Device& device, cudaStream_t stream) {
  CUtensorMap map;
  const cudaError_t error = describe_tokens(p, &map);
  if (error != cudaSuccess) return error;
  LaunchShape shape;
  shape.grid = std::min(device.n_multiprocessors, count_tiles<kTiles>(p));
  shape.block = kThreads;
  shape.shared_bytes = sizeof(Shared<kTiles>);
  shape.starts_early = true;
  return launch_kernel(gemm_wgmma_kernel<kTiles>, shape, stream, p, map);
}

}  // namespace

cudaError_t launch_gemm_wgmma(const Problem& p, const Device& device, cudaStream_t stream) {
  // Wide tiles decode less per product; narrow ones may fill the last wave better.
  constexpr double kNarrowCost = 1.1;
  const auto waves = [&](int tiles) { return (tiles + device.n_multiprocessors - 1) / device.n_multiprocessors; };
  const bool narrow = waves(count_tiles<9>(p)) * 9 * kNarrowCost < waves(count_tiles<12>(p)) * 12;
  return narrow ? launch<9>(p, device, stream) : launch<12>(p, device, stream);
}

}  // namespace nibble::kernels::cuda::nvfp4
