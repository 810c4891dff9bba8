// Activations as contracts nc1-f16, w4a4 and native-fp4 want them (sections 10, 11 and 13), from rows that f16 holds.
// Rows that it does not hold raise their flag, whatever weights they meet.
#include "format/nvfp4.h"
#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/linear_fp4.h"
#include "kernels/cuda/linear_nvfp4.h"
#include "kernels/cuda/linear_w4a4.h"

namespace nibble::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kGroup = 16;

int blocks_for(int n, int per_block) {
  return (n + per_block - 1) / per_block;
}

// x as f16. Each lane of a warp brings one element; a flag is raised for the row where f16 does not hold it.
__device__ u32 to_half(float x, const Flags& flags, int row) {
  const u32 half = format::f32_to_f16(x);
  const bool fits = !format::is_nonfinite(format::f16_to_f32(half));
  if (!__all_sync(kAllLanes, fits) && threadIdx.x % kWarp == 0) raise_flag(flags, row);
  return half;
}

// A warp takes a super-block: blockIdx.x * kWarps + its index, of row blockIdx.y.
__global__ void __launch_bounds__(kThreads) quantize_a16q8_kernel(QuantizeA16Q8Args a) {
  constexpr int kPerLane = kSuperBlockColumns / kWarp;
  const int n_blocks = super_blocks(a.dim), block = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (block >= n_blocks) return;
  const int row = blockIdx.y, lane = threadIdx.x % kWarp, first = block * kSuperBlockColumns;
  const float* x = a.x + static_cast<std::size_t>(row) * a.dim;

  // Of equal magnitudes the first gives M its sign. Which one does is without effect: q and d both change theirs.
  u32 halves[kPerLane], largest = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int k = i * kWarp + lane;
    halves[i] = to_half(first + k < a.dim ? x[first + k] : 0.0f, a.flags, row);
    largest = max(largest, halves[i] & 0x7FFFu);
  }
  largest = __reduce_max_sync(kAllLanes, largest);
  const bool is_zero = largest == 0;
  const float inverse = is_zero ? 0.0f : format::div_rn(-127.0f, format::f16_to_f32(largest));
  const float d = is_zero ? 0.0f : format::div_rn(1.0f, inverse);
  const QuantizedA16Q8& to = a.quantized;
  const std::size_t at = static_cast<std::size_t>(row) * n_blocks + block;
  __half* h = reinterpret_cast<__half*>(to.h) + static_cast<std::size_t>(row) * to.h_stride;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int k = i * kWarp + lane;
    const int q = is_zero ? 0 : min(format::rne(format::f16_to_f32(halves[i]), inverse), 127);
    if (to.q != nullptr) {
      to.q[at * kSuperBlockColumns + k] = static_cast<std::int8_t>(q);
    } else if (first + k < to.h_stride) {
      h[nvfp4_input_position(first + k)] = __int2half_rn(q);
    }
  }
  if (to.q != nullptr) {
    if (lane == 0) to.d[at] = d;
  } else if (const int column = first / kBlockColumns + lane;
             lane < kSuperBlockColumns / kBlockColumns && column < to.h_stride / kBlockColumns) {
    to.d_columns[static_cast<std::size_t>(column) * to.d_stride + row] = d;
  }
}

// A lane brings an element, 16 lanes a group, and gets its code; they share the scale.
struct CodeAndScale {
  u32 code, scale;
};
__device__ CodeAndScale to_nvfp4(float value, float input_scale_inv) {
  const float x = format::f16_to_f32(format::f32_to_f16(value));
  float largest = format::abs_value(x);
#pragma unroll
  for (int apart = 1; apart < kGroup; apart *= 2) largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, apart));
  const float sixth = format::bits_float(0x3E2AAAABu);
  const u32 scale = format::e4m3_encode(fminf((largest * sixth) * input_scale_inv, format::kE4m3Max));
  const float s = format::e4m3_decode(scale), m = format::abs_value(x) * input_scale_inv;
  const u32 code = scale == 0 ? 0u
                              : (m > s * 0.25f) + (m >= s * 0.75f) + (m > s * 1.25f) + (m >= s * 1.75f) +
                                    (m > s * 2.5f) + (m >= s * 3.5f) + (m > s * 5.0f);
  return {format::sign_bit(x) >> 28 | code, scale};
}

// dim is a multiple of 16 and a warp may end in the middle.
__global__ void __launch_bounds__(kThreads) quantize_w4a4_kernel(QuantizeW4A4Args a) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const bool is_inside = i < a.dim;
  const float x = is_inside ? a.x[static_cast<std::size_t>(blockIdx.y) * a.dim + i] : 0.0f;
  const CodeAndScale of = to_nvfp4(x, a.input_scale_inv);
  if (!is_inside) return;
  const QuantizedW4A4& to = a.quantized;
  const std::size_t row = static_cast<std::size_t>(blockIdx.y) * to.columns;
  to.q1[row + (to.is_for_tiles ? w4a4_input_position(i) : i)] = static_cast<std::int8_t>(format::e2m1_x2(of.code));
  if (i % kGroup == 0) to.q9[(row + i) / kGroup] = format::e4m3_x512(of.scale);
}

// The same into fragments (linear_fp4.h): eight lanes make a word, whose place is that of lane 4g + t of a product.
__global__ void __launch_bounds__(kThreads) quantize_fp4_kernel(QuantizeFp4Args a) {
  constexpr int kWordCodes = 8;
  const int k = blockIdx.x * kThreads + threadIdx.x, row = blockIdx.y;
  const float x = k < a.dim ? a.x[static_cast<std::size_t>(row) * a.dim + k] : 0.0f;
  const CodeAndScale of = to_nvfp4(x, a.input_scale_inv);
  u32 word = of.code << (4 * (k % kWordCodes));
#pragma unroll
  for (int apart = 1; apart < kWordCodes; apart *= 2) word |= __shfl_xor_sync(kAllLanes, word, apart);
  if (k >= fp4_blocks(a.dim) * kFp4Depth) return;
  const int block = k / kFp4Depth, in_block = k % kFp4Depth, g = row % kFp4Tokens;
  std::uint8_t* piece =
      a.packed + (static_cast<std::size_t>(row / kFp4Tokens) * fp4_blocks(a.dim) + block) * kFp4InputPiece;
  if (k % kWordCodes == 0) {
    const int lane = 4 * g + in_block / kWordCodes % 4, half = in_block / 32;
    reinterpret_cast<u32*>(piece)[2 * lane + half] = word;
  }
  if (k % kGroup == 0) {
    std::uint8_t* scales = piece + kFp4Tokens * kFp4Depth / 2;
    scales[4 * g + in_block / kGroup] = static_cast<std::uint8_t>(of.scale);
  }
}

__global__ void __launch_bounds__(kThreads) check_halves_kernel(CheckHalvesArgs a) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  to_half(i < a.dim ? a.x[static_cast<std::size_t>(blockIdx.y) * a.dim + i] : 0.0f, a.flags, blockIdx.y);
}

}  // namespace

cudaError_t launch(const QuantizeA16Q8Args& a, cudaStream_t stream) {
  const dim3 grid(blocks_for(super_blocks(a.dim), kWarps), a.n_rows);
  return launch_kernel(quantize_a16q8_kernel, {grid, kThreads}, stream, a);
}

cudaError_t launch(const QuantizeW4A4Args& a, cudaStream_t stream) {
  return launch_kernel(quantize_w4a4_kernel, {dim3(blocks_for(a.dim, kThreads), a.n_rows), kThreads}, stream, a);
}

cudaError_t launch(const QuantizeFp4Args& a, cudaStream_t stream) {
  const dim3 grid(blocks_for(fp4_blocks(a.dim) * kFp4Depth, kThreads), a.n_rows);
  return launch_kernel(quantize_fp4_kernel, {grid, kThreads}, stream, a);
}

cudaError_t launch(const CheckHalvesArgs& a, cudaStream_t stream) {
  return launch_kernel(check_halves_kernel, {dim3(blocks_for(a.dim, kThreads), a.n_rows), kThreads}, stream, a);
}

}  // namespace nibble::kernels::cuda
