// NVFP4 weights times many rows of activations, on mma.sync: for every GPU from sm_80 on.
//
// A block of threads makes 128 weight rows x 128 tokens. Eight warps, four along the rows, two along the tokens: a warp
// decodes two tiles of 16 rows straight from memory into the A operand, and multiplies them with eight columns tiles of
// tokens from shared memory. What the contract sums exactly, a block of 64 or four of them, is summed on the tensor
// core from zero; then its float steps follow for each output.
#include "kernels/cuda/linear_nvfp4_launch.h"

namespace nibble::kernels::cuda::nvfp4 {
namespace {

constexpr int kThreads = 256;
constexpr int kWarpsAlongRows = 4;
constexpr int kWarpTiles = 2;  // of 16 weight rows
constexpr int kRowTiles = kWarpsAlongRows * kWarpTiles;
constexpr int kTokens = 128;     // of a block of threads
constexpr int kWarpColumns = 8;  // column tiles of 8 tokens of a warp
constexpr int kStages = 4;

struct Shared {
  alignas(128) uint4 q[kStages][kTokens][8];  // 16-byte piece i of token t lies at i ^ (t & 1) * 4
  alignas(16) float d[kStages][kTokens];
};

// The row tiles of a block of threads: eight of one segment, or what is left of it.
struct RowTiles {
  int segment;
  int first;
};
__device__ RowTiles find_rows(const Problem& p, int group) {
  int s = 0;
  for (;; ++s) {
    const int groups = (p.segments[s].n_tiles + kRowTiles - 1) / kRowTiles;
    if (group < groups) break;
    group -= groups;
  }
  return {s, group * kRowTiles};
}

__device__ void start_stage(const Problem& p, Shared& shared, int block, int first_token) {
  const int stage = block % kStages;
  if (block < 2 * p.n_pairs) {
#pragma unroll
    for (int i = 0; i < kTokens * 8 / kThreads; ++i) {
      const int piece = i * kThreads + threadIdx.x, token = piece / 8, k = piece % 8;
      const int row = min(first_token + token, p.n_rows - 1);
      const __half* from = p.q + (static_cast<std::size_t>(row) * p.n_pairs * 2 + block) * kBlock + k * 8;
      copy_16_if(true, shared_address(&shared.q[stage][token][k ^ (token & 1) * 4]), reinterpret_cast<u64>(from));
    }
    const float* d = p.d + static_cast<std::size_t>(block) * p.d_stride + first_token + threadIdx.x * 4;
    copy_16_if(threadIdx.x < kTokens / 4, shared_address(&shared.d[stage][threadIdx.x * 4 % kTokens]),
               reinterpret_cast<u64>(d));
  }
  commit_copies();
}

// What a warp reads of its row tiles for one block.
struct WeightWords {
  uint4 codes[kWarpTiles];
  uint2 scales[kWarpTiles];
  __device__ void load(const std::uint8_t* const (&tiles)[kWarpTiles], int block, int lane) {
#pragma unroll
    for (int i = 0; i < kWarpTiles; ++i) {
      const std::uint8_t* unit = tiles[i] + static_cast<std::size_t>(block / 2) * kUnitBytes;
      codes[i] = reinterpret_cast<const uint4*>(unit + block % 2 * kBlockCodeBytes)[lane];
      scales[i] = reinterpret_cast<const uint2*>(unit + kUnitCodeBytes)[lane / 4 * 2 + block % 2];
    }
  }
};

using Sums = float[kWarpTiles][kWarpColumns][4];

template <bool kFree>
__device__ inline void multiply_block(const WeightWords& w, const uint4 (&q)[kTokens][8], int first, int lane,
                                      Sums& sums) {
  const int m = lane / 4, quad = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    u32 a[kWarpTiles][2][4];
#pragma unroll
    for (int i = 0; i < kWarpTiles; ++i) {
      const u32 scales = half == 0 ? w.scales[i].x : w.scales[i].y;
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const uint4 c = w.codes[i];
        decode(half == 0 ? (step == 0 ? c.x : c.y) : (step == 0 ? c.z : c.w), a[i][step]);
        fold_scales(a[i][step], scale_pair<0>(scales), scale_pair<2>(scales));
      }
    }
#pragma unroll
    for (int j = 0; j < kWarpColumns; ++j) {
      const uint4 x = q[first + j * 8 + m][(half * 4 + quad) ^ (m & 1) * 4];
#pragma unroll
      for (int i = 0; i < kWarpTiles; ++i) {
        add_products<kFree>(sums[i][j], a[i][0], x.x, x.y);
        add_products<kFree>(sums[i][j], a[i][1], x.z, x.w);
      }
    }
  }
}

// acc = fma(f32(S), c, acc), tokens along the columns.
__device__ inline void promote(Sums& sums, const float (&d)[kTokens], int first, int quad, float g, Sums& acc) {
  constexpr float kLargest = 0x1p110f;
  float c[kWarpColumns][2];
  bool is_wide = false;
#pragma unroll
  for (int j = 0; j < kWarpColumns; ++j) {
    const float2 pair = *reinterpret_cast<const float2*>(&d[first + j * 8 + quad * 2]);
    c[j][0] = pair.x * g;
    c[j][1] = pair.y * g;
    is_wide |= !(c[j][0] < kLargest) | !(c[j][1] < kLargest);
  }
  // Factors too large to take up the unit of the sums: the sums take it.
  const float unit = is_wide ? 1.0f : kSumUnit, sum_unit = is_wide ? kSumUnit : 1.0f;
  if (is_wide) {
    for (int i = 0; i < kWarpTiles * kWarpColumns * 4; ++i) (&sums[0][0][0])[i] *= sum_unit;
  }
#pragma unroll
  for (int j = 0; j < kWarpColumns; ++j) {
#pragma unroll
    for (int i = 0; i < kWarpTiles; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        acc[i][j][k] = __fmaf_rn(sums[i][j][k], c[j][k % 2] * unit, acc[i][j][k]);
        sums[i][j][k] = 0;
      }
    }
  }
}

// The same for a super-block of nc1-f16.
__device__ inline void promote_super_block(Sums& sums, const float (&d)[kTokens], int first, int quad,
                                           float tensor_scale, Sums& acc) {
#pragma unroll
  for (int j = 0; j < kWarpColumns; ++j) {
    const float2 pair = *reinterpret_cast<const float2*>(&d[first + j * 8 + quad * 2]);
    const float factors[2] = {Nc1F16::factor(pair.x, kSumUnit), Nc1F16::factor(pair.y, kSumUnit)};
#pragma unroll
    for (int i = 0; i < kWarpTiles; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        acc[i][j][k] = Nc1F16::add(acc[i][j][k], sums[i][j][k], factors[k % 2], tensor_scale);
        sums[i][j][k] = 0;
      }
    }
  }
}

// What stands in place of that where one sum goes over the whole of K.
__device__ inline void scale_sums(float factor, Sums& sums) {
#pragma unroll
  for (int i = 0; i < kWarpTiles * kWarpColumns * 4; ++i) (&sums[0][0][0])[i] *= factor;
}

__device__ void write(const Problem& p, const Segment& segment, int first_row, int first_token, int lane,
                      const Sums& acc) {
#pragma unroll
  for (int i = 0; i < kWarpTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpColumns; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int row = first_row + i * kTileRows + tile_row(lane / 4) + k / 2 * kLaneRows;
        const int token = first_token + j * 8 + lane % 4 * 2 + k % 2;
        if (row >= segment.n_out || token >= p.n_rows) continue;
        const float value = segment.bias != nullptr ? acc[i][j][k] + segment.bias[row] : acc[i][j][k];
        segment.out[static_cast<std::size_t>(token) * segment.out_stride + row] = value;
      }
    }
  }
}

template <typename Contract>
__global__ void __launch_bounds__(kThreads, 1) gemm_mma_kernel(const __grid_constant__ Problem p) {
  NIBBLE_DYNAMIC_SHARED(std::uint8_t, memory, 128);
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const RowTiles rows = find_rows(p, blockIdx.y);
  const Segment& segment = p.segments[rows.segment];
  const int first_token = blockIdx.x * kTokens, warp_token = warp / kWarpsAlongRows * kWarpColumns * 8;
  const int first_tile = rows.first + warp % kWarpsAlongRows * kWarpTiles;
  const std::uint8_t* tiles[kWarpTiles];
#pragma unroll
  for (int i = 0; i < kWarpTiles; ++i) {
    const int tile = min(first_tile + i, segment.n_tiles - 1);  // beyond the last one: computed, not written
    tiles[i] = segment.units + static_cast<std::size_t>(tile) * p.n_pairs * kUnitBytes;
  }
  const int n_blocks = 2 * p.n_pairs;
  WeightWords next;
  next.load(tiles, 0, lane);
  wait_for_predecessors();
  for (int i = 0; i < kStages - 1; ++i) start_stage(p, shared, i, first_token);

  Sums acc = {}, sums = {};
  for (int block = 0; block < n_blocks; ++block) {
    const WeightWords words = next;
    if (block + 1 < n_blocks) next.load(tiles, block + 1, lane);
    wait_copies<kStages - 2>();
    __syncthreads();
    start_stage(p, shared, block + kStages - 1, first_token);
    const int stage = block % kStages;
    multiply_block<Contract::kFree>(words, shared.q[stage], warp_token, lane, Contract::kFree ? acc : sums);
    if constexpr (is_nc1_f16<Contract>) {
      if (block % Contract::kBlocks == Contract::kBlocks - 1 || block + 1 == n_blocks)
        promote_super_block(sums, shared.d[stage], warp_token, lane % 4, segment.scale, acc);
    } else if constexpr (!Contract::kFree) {
      promote(sums, shared.d[stage], warp_token, lane % 4, segment.scale, acc);
    }
  }
  if constexpr (Contract::kFree) scale_sums(segment.scale * kSumUnit, acc);
  if constexpr (is_nc1_f16<Contract>) {
#pragma unroll
    for (int i = 0; i < kWarpTiles * kWarpColumns * 4; ++i) (&acc[0][0][0])[i] = Contract::finish((&acc[0][0][0])[i]);
  }
  write(p, segment, first_tile * kTileRows, first_token + warp_token, lane, acc);
}

}  // namespace

template <typename Contract>
cudaError_t launch_gemm_mma(const Problem& p, const Device&, cudaStream_t stream) {
  int groups = 0;
  for (int s = 0; s < p.n_segments; ++s) groups += (p.segments[s].n_tiles + kRowTiles - 1) / kRowTiles;
  const dim3 grid((p.n_rows + kTokens - 1) / kTokens, groups);
  return launch_kernel(gemm_mma_kernel<Contract>, {grid, kThreads, sizeof(Shared)}, stream, p);
}
template cudaError_t launch_gemm_mma<Nc1>(const Problem&, const Device&, cudaStream_t);
template cudaError_t launch_gemm_mma<Nc1F16>(const Problem&, const Device&, cudaStream_t);
template cudaError_t launch_gemm_mma<Native>(const Problem&, const Device&, cudaStream_t);

}  // namespace nibble::kernels::cuda::nvfp4
