// Products of NVFP4 with NVFP4 in one instruction. Compiled for sm_120a only; never run on hardware: what is known of
// it is that the emulation computes right sums with the layout that the PTX manual states.
#include "format/nvfp4.h"
#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/linear_fp4.h"

namespace nibble::kernels::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
constexpr int kGroup = 16, kWordCodes = 8;
constexpr int kCodesOfWeights = kFp4Outputs * kFp4Depth / 2, kCodesOfInput = kFp4Tokens * kFp4Depth / 2;  // bytes

// A warp packs a piece: lane 4g + t the codes of outputs g and g + 8, from 8t and from 32 + 8t on.
__global__ void __launch_bounds__(kThreads) pack_fp4_kernel(PackFp4Args a) {
  const int n_blocks = fp4_blocks(a.n_in), n_tiles = (a.n_out + kFp4Outputs - 1) / kFp4Outputs;
  const std::int64_t piece = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (piece >= static_cast<std::int64_t>(n_tiles) * n_blocks) return;
  const int lane = threadIdx.x % kWarp, tile = static_cast<int>(piece / n_blocks),
            block = static_cast<int>(piece % n_blocks);
  std::uint8_t* to = a.packed + piece * kFp4WeightPiece;
  u32 words[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int row = tile * kFp4Outputs + lane / 4 + r % 2 * 8,
              k = block * kFp4Depth + lane % 4 * kWordCodes + r / 2 * 32;
    words[r] = 0;
    if (row >= a.n_out || k >= a.n_in) continue;
    const std::size_t at = static_cast<std::size_t>(row) * a.n_in + k;
    const bool negative = a.scales[at / kGroup] >= 0x80;
    words[r] = *reinterpret_cast<const u32*>(a.codes + at / 2) ^ (negative ? 0x88888888u : 0u);
  }
  reinterpret_cast<uint4*>(to)[lane] = make_uint4(words[0], words[1], words[2], words[3]);
  if (lane >= kFp4Outputs) return;
  u32 scales = 0;
  for (int group = 0; group < kFp4Depth / kGroup; ++group) {
    const int row = tile * kFp4Outputs + lane, k = block * kFp4Depth + group * kGroup;
    if (row < a.n_out && k < a.n_in) {
      scales |= (a.scales[(static_cast<std::size_t>(row) * a.n_in + k) / kGroup] & 0x7Fu) << (8 * group);
    }
  }
  reinterpret_cast<u32*>(to + kCodesOfWeights)[lane] = scales;
}

// kTiles tiles of 8 tokens and one of 16 outputs a thread block. Its warps share the blocks of K, and what they have is
// added in their order.
template <int kTiles>
__global__ void __launch_bounds__(kThreads) linear_fp4_kernel(LinearFp4Args a) {
  __shared__ float sums[kWarps][kTiles * kFp4Tokens][kFp4Outputs + 1];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, g = lane / 4, t = lane % 4;
  const int n_blocks = fp4_blocks(a.weights.n_in), first_token = blockIdx.y * kTiles * kFp4Tokens;
  const int n_tiles = min(kTiles, (a.n_rows - first_token + kFp4Tokens - 1) / kFp4Tokens);
  const std::uint8_t* weights = a.weights.packed + static_cast<std::size_t>(blockIdx.x) * n_blocks * kFp4WeightPiece;
  const std::uint8_t* input = a.input + static_cast<std::size_t>(blockIdx.y) * kTiles * n_blocks * kFp4InputPiece;

  float c[kTiles][4] = {};
  for (int block = warp; block < n_blocks; block += kWarps) {
    const std::uint8_t* w = weights + static_cast<std::size_t>(block) * kFp4WeightPiece;
    const uint4 codes = reinterpret_cast<const uint4*>(w)[lane];
    const u32 fragment[4] = {codes.x, codes.y, codes.z, codes.w};
    // Of a group of four lanes the first two bring the scales of outputs g and g + 8.
    const u32 w_scales = reinterpret_cast<const u32*>(w + kCodesOfWeights)[g + t % 2 * 8];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile >= n_tiles) break;
      const std::uint8_t* x = input + (static_cast<std::size_t>(tile) * n_blocks + block) * kFp4InputPiece;
      const uint2 q = reinterpret_cast<const uint2*>(x)[lane];
      mma_fp4(c[tile], fragment, q.x, q.y, w_scales, reinterpret_cast<const u32*>(x + kCodesOfInput)[g]);
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[warp][tile * kFp4Tokens + 2 * t + i % 2][g + i / 2 * 8] = c[tile][i];
  }
  __syncthreads();
  const float inverse = format::div_rn(1.0f, a.weights.input_scale_inv);
  for (int i = threadIdx.x; i < kTiles * kFp4Tokens * kFp4Outputs; i += kThreads) {
    const int token = i / kFp4Outputs, of_tile = i % kFp4Outputs, output = blockIdx.x * kFp4Outputs + of_tile;
    if (first_token + token >= a.n_rows || output >= a.weights.n_out) continue;
    float sum = sums[0][token][of_tile];
#pragma unroll
    for (int other = 1; other < kWarps; ++other) sum += sums[other][token][of_tile];
    const float y = format::f16_to_f32(format::f32_to_f16((sum * a.weights.tensor_scale) * inverse));
    a.out[static_cast<std::size_t>(first_token + token) * a.weights.n_out + output] =
        a.bias != nullptr ? y + a.bias[output] : y;
  }
}

// --- the start-up test: do this GPU and this file agree on where an element and its scale lie? ---

// Code and scale of element k of an output or a token, without a pattern that another layout would share. All sums of
// products are multiples of 2^-10 below 2^13, so exact in f32 in any order.
__device__ u32 known_code(int of, int k) {
  return static_cast<u32>(of * 7 + k * 5 + of * k % 11) & 15u;
}
__device__ u32 known_scale(int of, int group) {
  return 0x34u + static_cast<u32>(of * 3 + group * 5) % 13u;  // 0.75 to 3
}
__device__ u32 known_codes(int of, int k) {
  u32 word = 0;
  for (int i = 0; i < kWordCodes; ++i) word |= known_code(of, k + i) << (4 * i);
  return word;
}
__device__ u32 known_scales(int of) {
  u32 word = 0;
  for (int group = 0; group < kFp4Depth / kGroup; ++group) word |= known_scale(of, group) << (8 * group);
  return word;
}
__device__ float known_value(int of, int k) {
  return format::e2m1_decode(known_code(of, k)) * format::e4m3_decode(known_scale(of, k / kGroup));
}

__global__ void __launch_bounds__(kWarp) check_fp4_kernel(CheckFp4Args a) {
  constexpr int kFirstToken = 40;  // tokens are other operands than outputs
  if (!has_mma_fp4()) return;
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4, k = t * kWordCodes;
  const u32 weights[4] = {known_codes(g, k), known_codes(g + 8, k), known_codes(g, k + 32), known_codes(g + 8, k + 32)};
  float c[4] = {1.0f, -2.0f, 3.0f, -4.0f};
  mma_fp4(c, weights, known_codes(kFirstToken + g, k), known_codes(kFirstToken + g, k + 32),
          known_scales(g + t % 2 * 8), known_scales(kFirstToken + g));
  bool is_right = true;
  for (int i = 0; i < 4; ++i) {
    float sum = static_cast<float>((i + 1) * (i % 2 == 0 ? 1 : -1));
    for (int j = 0; j < kFp4Depth; ++j)
      sum += known_value(g + i / 2 * 8, j) * known_value(kFirstToken + 2 * t + i % 2, j);
    is_right = is_right && sum == c[i];
  }
  is_right = __all_sync(kAllLanes, is_right);
  if (lane == 0) *a.verdict = is_right ? kFp4Right : kFp4Wrong;
}

}  // namespace

cudaError_t launch(const PackFp4Args& a, cudaStream_t stream) {
  const std::size_t n_pieces = fp4_weight_bytes(a.n_out, a.n_in) / kFp4WeightPiece;
  return launch_kernel(pack_fp4_kernel, {dim3(static_cast<unsigned>((n_pieces + kWarps - 1) / kWarps)), kThreads},
                       stream, a);
}

cudaError_t launch(const LinearFp4Args& a, cudaStream_t stream) {
  const unsigned n_tiles = static_cast<unsigned>((a.weights.n_out + kFp4Outputs - 1) / kFp4Outputs);
  const auto run = [&](auto kernel, int tokens) {
    return launch_kernel(kernel, {dim3(n_tiles, (a.n_rows + tokens - 1) / tokens), kThreads}, stream, a);
  };
  if (a.n_rows <= kFp4Tokens) return run(linear_fp4_kernel<1>, kFp4Tokens);
  if (a.n_rows <= 2 * kFp4Tokens) return run(linear_fp4_kernel<2>, 2 * kFp4Tokens);
  return run(linear_fp4_kernel<8>, 8 * kFp4Tokens);
}

cudaError_t launch(const CheckFp4Args& a, cudaStream_t stream) {
  return launch_kernel(check_fp4_kernel, {1, kWarp}, stream, a);
}

}  // namespace nibble::kernels::cuda
