// w4a4 on mma.sync of int8: a warp has some tiles of 16 outputs times some of 8 tokens. Few tokens: the warps of a
// thread block share the blocks of K of one tile of outputs, and what they have is added at the end. Many: each has its
// own outputs and tokens, and those that share one of the two find it in the first cache.
#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/linear_nvfp4_rows.cuh"
#include "kernels/cuda/linear_w4a4.h"

namespace nibble::kernels::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kGroups = kW4A4Block / 16;
constexpr int kColumns = 8;  // tokens of the instruction

// q9 of an E4M3 byte as mantissa << shift, mantissa in the upper half of a byte.
__host__ __device__ constexpr u32 pack_q9(u32 e4m3) {
  const u32 exponent = e4m3 >> 3 & 15u, mantissa = e4m3 & 7u;
  return exponent == 0 ? mantissa << 4 : (8 + mantissa) << 4 | (exponent - 1);
}
struct Scales {
  u32 mantissas, shifts;
  __device__ explicit Scales(u32 word) : mantissas(word >> 4 & 0x0F0F0F0Fu), shifts(word & 0x0F0F0F0Fu) {}
  __device__ int q9(int group) const {
    return static_cast<int>((mantissas >> (8 * group) & 15u) << (shifts >> (8 * group) & 15u));
  }
};

// A warp packs a piece: lane 4g + t the codes of outputs g and g + 8, from 4t of each group on.
__global__ void __launch_bounds__(kThreads) pack_w4a4_kernel(PackW4A4Args a) {
  const int n_blocks = w4a4_blocks(a.n_in), n_tiles = (a.n_out + kW4A4Outputs - 1) / kW4A4Outputs;
  const std::int64_t piece = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (piece >= static_cast<std::int64_t>(n_tiles) * n_blocks) return;
  const int lane = threadIdx.x % kWarp, tile = static_cast<int>(piece / n_blocks),
            block = static_cast<int>(piece % n_blocks);
  u32 words[kGroups] = {}, scales = 0;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int k = block * kW4A4Block + group * kLaneElements;
    if (k >= a.n_in) break;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = tile * kW4A4Outputs + lane / 4 + half * 8;
      if (row >= a.n_out) continue;
      const std::size_t at = (static_cast<std::size_t>(row) * a.n_in + k) / kLaneElements;
      const u32 codes = reinterpret_cast<const std::uint16_t*>(a.codes)[at * 4 + lane % 4];
      words[group] |= (a.scales[at] >= 0x80 ? codes ^ 0x8888u : codes) << (16 * half);
    }
    const int row = tile * kW4A4Outputs + lane;
    if (lane < kW4A4Outputs && row < a.n_out) {
      scales |= pack_q9(a.scales[(static_cast<std::size_t>(row) * a.n_in + k) / kLaneElements]) << (8 * group);
    }
  }
  std::uint8_t* to = a.packed + piece * kW4A4Piece;
  reinterpret_cast<uint4*>(to)[lane] = make_uint4(words[0], words[1], words[2], words[3]);
  if (lane < kW4A4Outputs) reinterpret_cast<u32*>(to + kW4A4CodeBytes)[lane] = scales;
}

// What a warp does: kTiles tiles of outputs, kC tiles of tokens. kSharing warps share K.
template <int kTiles, int kC, int kSharing>
struct Shape {
  static constexpr int kAlongRows = kSharing == 1 ? 4 : 1;  // warps that have other outputs
  static constexpr int kAlongTokens = kWarps / kSharing / kAlongRows;
  static constexpr int kRowTiles = kAlongRows * kTiles;  // of a thread block
  static constexpr int kTokens = kAlongTokens * kC * kColumns;
  static_assert(kSharing * kAlongRows * kAlongTokens == kWarps);
};

template <int kTiles, int kC>
struct W4A4Warp {
  const LinearW4A4TilesArgs& a;
  int first_tile, first_token, lane;

  // Of one block, as it comes from memory.
  struct Operands {
    uint4 codes[kTiles];
    u32 scales[kTiles][2];
    uint4 q1[kC];
    int4 q9[kC][2];
  };
  __device__ void load(int block, Operands& to) const {
    const int n_blocks = w4a4_blocks(a.weights.n_in), n_tiles = (a.weights.n_out + kW4A4Outputs - 1) / kW4A4Outputs;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {  // beyond the last tile or token: that one again, computed and not written
      const int tile = min(first_tile + i, n_tiles - 1);
      const std::uint8_t* piece = a.weights.packed + (static_cast<std::size_t>(tile) * n_blocks + block) * kW4A4Piece;
      to.codes[i] = reinterpret_cast<const uint4*>(piece)[lane];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        to.scales[i][half] = reinterpret_cast<const u32*>(piece + kW4A4CodeBytes)[lane / 4 + half * 8];
    }
#pragma unroll
    for (int j = 0; j < kC; ++j) {
      const auto at = [&](int token) {
        return static_cast<std::size_t>(min(first_token + j * kColumns + token, a.n_rows - 1)) * n_blocks + block;
      };
      to.q1[j] = reinterpret_cast<const uint4*>(a.input.q1)[at(lane / 4) * 4 + lane % 4];
#pragma unroll
      for (int i = 0; i < 2; ++i) to.q9[j][i] = reinterpret_cast<const int4*>(a.input.q9)[at(lane % 4 * 2 + i)];
    }
  }

  // Outputs g and g + 8 of tokens 2t and 2t + 1, as in the instruction.
  using Sums = long long[kTiles][kC][4];
  static __device__ void add(const Operands& from, Sums& sums) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const u32 codes = word_of(from.codes[i], group);
        const u32 low = decode4(codes & 0xFFFFu), high = decode4(codes >> 16);
        const int q9[2] = {Scales(from.scales[i][0]).q9(group), Scales(from.scales[i][1]).q9(group)};
#pragma unroll
        for (int j = 0; j < kC; ++j) {
          int products[4] = {};
          mma_s8_k16(products, low, high, word_of(from.q1[j], group));
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const int of_token = static_cast<int>(word_of(from.q9[j][k % 2], group));
            sums[i][j][k] += static_cast<long long>(products[k] * q9[k / 2]) * of_token;  // the first < 2^30
          }
        }
      }
    }
  }
  template <typename Four>
  static __device__ u32 word_of(const Four& v, int i) {
    return static_cast<u32>(i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w);
  }

  // Every kStep'th block from `first` on; the next one's operands are on their way.
  template <int kStep>
  __device__ void run(int first, Sums& sums) const {
    const int n_blocks = w4a4_blocks(a.weights.n_in);
    if (first >= n_blocks) return;
    Operands next;
    load(first, next);
    for (int block = first; block < n_blocks; block += kStep) {
      const Operands now = next;
      if (block + kStep < n_blocks) load(block + kStep, next);
      add(now, sums);
    }
  }

  __device__ void write(int i, int j, int k, long long sum) const {
    const int row = (first_tile + i) * kW4A4Outputs + lane / 4 + k / 2 * 8;
    const int token = first_token + j * kColumns + lane % 4 * 2 + k % 2;
    if (row >= a.weights.n_out || token >= a.n_rows) return;
    const float inverse = format::div_rn(1.0f, a.weights.input_scale_inv);
    const float v = ((__ll2float_rn(sum) * 0x1p-20f) * a.weights.tensor_scale) * inverse;
    const float y = format::f16_to_f32(format::f32_to_f16(v));
    a.out[static_cast<std::size_t>(token) * a.weights.n_out + row] = a.bias != nullptr ? y + a.bias[row] : y;
  }
};

template <int kTiles, int kC, int kSharing>
__global__ void __launch_bounds__(kThreads) linear_w4a4_tiles_kernel(LinearW4A4TilesArgs a) {
  using S = Shape<kTiles, kC, kSharing>;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, place = warp / kSharing;
  const W4A4Warp<kTiles, kC> w = {a, static_cast<int>(blockIdx.x) * S::kRowTiles + place % S::kAlongRows * kTiles,
                                  static_cast<int>(blockIdx.y) * S::kTokens + place / S::kAlongRows * kC * kColumns,
                                  lane};
  long long sums[kTiles][kC][4] = {};
  w.template run<kSharing>(warp % kSharing, sums);
  if constexpr (kSharing == 1) {
#pragma unroll
    for (int i = 0; i < kTiles * kC * 4; ++i)
      w.write(i / (kC * 4), i / 4 % kC, i % 4, sums[i / (kC * 4)][i / 4 % kC][i % 4]);
  } else {
    static_assert(kSharing == kWarps && kTiles == 1);
    __shared__ long long parts[kWarps][kC * 4][kWarp];
#pragma unroll
    for (int i = 0; i < kC * 4; ++i) parts[warp][i][lane] = sums[0][i / 4][i % 4];
    __syncthreads();
    for (int i = warp; i < kC * 4; i += kWarps) {
      long long sum = parts[0][i][lane];
#pragma unroll
      for (int other = 1; other < kWarps; ++other) sum += parts[other][i][lane];
      w.write(0, i / 4, i % 4, sum);
    }
  }
}

template <int kTiles, int kC, int kSharing>
cudaError_t launch_tiles(const LinearW4A4TilesArgs& a, cudaStream_t stream) {
  using S = Shape<kTiles, kC, kSharing>;
  constexpr int kOutputs = S::kRowTiles * kW4A4Outputs;
  const dim3 grid((a.weights.n_out + kOutputs - 1) / kOutputs, (a.n_rows + S::kTokens - 1) / S::kTokens);
  return launch_kernel(linear_w4a4_tiles_kernel<kTiles, kC, kSharing>, {grid, kThreads}, stream, a);
}

}  // namespace

cudaError_t launch(const PackW4A4Args& a, cudaStream_t stream) {
  const std::size_t n_pieces = w4a4_packed_bytes(a.n_out, a.n_in) / kW4A4Piece;
  return launch_kernel(pack_w4a4_kernel, {dim3(static_cast<unsigned>((n_pieces + kWarps - 1) / kWarps)), kThreads},
                       stream, a);
}

cudaError_t launch(const LinearW4A4TilesArgs& a, cudaStream_t stream) {
  constexpr int kManyRows = 64;
  if (a.n_rows <= kColumns) return launch_tiles<1, 1, kWarps>(a, stream);
  if (a.n_rows <= 2 * kColumns) return launch_tiles<1, 2, kWarps>(a, stream);
  if (a.n_rows < kManyRows) return launch_tiles<1, 4, kWarps>(a, stream);
  return launch_tiles<2, 4, 1>(a, stream);
}

}  // namespace nibble::kernels::cuda
