// Activations as contracts nc1-f16 and w4a4 want them (sections 10 and 11), from rows that f16 holds. Rows that it does
// not hold raise their flag, whatever weights they meet.
#include "format/nvfp4.h"
#include "kernels/cuda/device_math.cuh"

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
  const std::size_t at = static_cast<std::size_t>(row) * n_blocks + block;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int q = is_zero ? 0 : min(format::rne(format::f16_to_f32(halves[i]), inverse), 127);
    a.quantized.q[at * kSuperBlockColumns + i * kWarp + lane] = static_cast<std::int8_t>(q);
  }
  if (lane == 0) a.quantized.d[at] = is_zero ? 0.0f : format::div_rn(1.0f, inverse);
}

// A lane takes an element, 16 lanes a group. dim is a multiple of 16 and a warp may end in the middle.
__global__ void __launch_bounds__(kThreads) quantize_w4a4_kernel(QuantizeW4A4Args a) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const bool is_inside = i < a.dim;
  const std::size_t at = static_cast<std::size_t>(blockIdx.y) * a.dim + i;
  const float x = is_inside ? format::f16_to_f32(format::f32_to_f16(a.x[at])) : 0.0f;
  float largest = format::abs_value(x);
#pragma unroll
  for (int apart = 1; apart < kGroup; apart *= 2) largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, apart));
  if (!is_inside) return;
  const float sixth = format::bits_float(0x3E2AAAABu);
  const u32 scale = format::e4m3_encode(fminf((largest * sixth) * a.input_scale_inv, format::kE4m3Max));
  const float s = format::e4m3_decode(scale), m = format::abs_value(x) * a.input_scale_inv;
  const u32 code = scale == 0 ? 0u
                              : (m > s * 0.25f) + (m >= s * 0.75f) + (m > s * 1.25f) + (m >= s * 1.75f) +
                                    (m > s * 2.5f) + (m >= s * 3.5f) + (m > s * 5.0f);
  const u32 sign = format::sign_bit(x) >> 28;
  a.quantized.q1[at] = static_cast<std::int8_t>(format::e2m1_x2(sign | code));
  if (i % kGroup == 0) a.quantized.q9[at / kGroup] = format::e4m3_x512(scale);
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

cudaError_t launch(const CheckHalvesArgs& a, cudaStream_t stream) {
  return launch_kernel(check_halves_kernel, {dim3(blocks_for(a.dim, kThreads), a.n_rows), kThreads}, stream, a);
}

}  // namespace nibble::kernels::cuda
