// What several kernels share: reductions in the order of the contract, a11 of a block, the Hadamard butterfly.
#pragma once

#include "format/contract_math.h"
#include "format/half.h"
#include "format/nc1.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

namespace nibble::kernels::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

__device__ inline void raise_flag(const Flags& flags, int row) {
  const int i = flags.first + row;
  if (i < flags.count) flags.flags[i] = 1;
}

// Section 5, by a thread block whose first 256 threads bring a chain each: finish(sum) runs once, in one warp, and all
// threads get what it makes of the sum.
template <typename Finish>
__device__ inline float reduce_lanes(float lane_sum, const Finish& finish) {
  constexpr int kLanes = format::nc1::kReduceLanes, kSteps = kLanes / kWarp;
  __shared__ float lanes[kLanes], result;
  const int t = static_cast<int>(threadIdx.x);
  if (t < kLanes) lanes[t] = lane_sum;
  __syncthreads();
  if (t < kWarp) {
    float sum[kSteps];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) sum[i] = lanes[t + kWarp * i];
#pragma unroll
    for (int half = kSteps / 2; half > 0; half /= 2) {
#pragma unroll
      for (int i = 0; i < half; ++i) sum[i] = sum[i] + sum[i + half];
    }
#pragma unroll
    for (int half = kWarp / 2; half > 0; half /= 2) sum[0] = sum[0] + __shfl_down_sync(kAllLanes, sum[0], half);
    if (t == 0) result = finish(sum[0]);
  }
  __syncthreads();
  return result;
}
__device__ inline float reduce_lanes(float lane_sum) {
  return reduce_lanes(lane_sum, [](float sum) { return sum; });
}

// The scale of values whose largest magnitude has these bits, quantized to at most `max` (sections 3 and 7).
struct Quantizer {
  float inverse;
  float scale;
  bool is_nonfinite;
};
__device__ inline Quantizer quantizer(u32 max_bits, float max) {
  const float largest = format::bits_float(max_bits);
  if (format::is_nonfinite(largest)) return {0.0f, format::bits_float(0x7FC00000u), true};
  if (largest < format::nc1::kTiny) return {0.0f, 0.0f, false};
  return {format::div_rn(max, largest), format::div_rn(largest, max), false};
}
__device__ inline int quantize(float x, const Quantizer& by) {
  return by.inverse == 0.0f ? 0 : format::rne(x, by.inverse);
}

// a11 of one block, whose largest magnitude has these bits: where its integers go, and what they are.
struct BlockOutput {
  __device__ BlockOutput(const Quantized& quantized, u32 max_bits, std::size_t row, int n_blocks, int block)
      : out(quantized),
        by(quantizer(max_bits, static_cast<float>(format::nc1::kActivationMax))),
        is_finite(!by.is_nonfinite && !(out.h_is_native && max_bits >= kBeyondF16)),
        at(row * n_blocks + block),
        at_column(static_cast<std::size_t>(block) * out.d_stride + row),
        q(out.q + at * kBlockColumns),
        h(reinterpret_cast<__half2*>(out.h + row * out.h_stride + block * kBlockColumns)) {}

  __device__ std::int16_t integer(float x) const { return static_cast<std::int16_t>(quantize(x, by)); }
  // An element and the one a group of 16 further, which are neighbours in the order of linear_nvfp4.h.
  __device__ __half2 halves(float first, float second) const {
    if (out.h_is_native) return __halves2half2(__float2half_rn(first), __float2half_rn(second));
    return __halves2half2(__int2half_rn(quantize(first, by)), __int2half_rn(quantize(second, by)));
  }
  __device__ void write_scale() const {
    out.d[at] = by.scale;
    out.d_columns[at_column] = by.scale;
  }

  static constexpr u32 kBeyondF16 = 0x477FF000u;  // 65,520, the least that rounds to an infinite f16
  const Quantized& out;
  Quantizer by;
  bool is_finite;  // where f16 has to hold the values, that it does
  std::size_t at, at_column;
  std::int16_t* q;  // [kBlockColumns]
  __half2* h;       // [kBlockColumns / 2]
};

// The elements of a block that a lane quantizes: this one and the one a group of 16 further.
__device__ inline int first_element_of_lane() {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return lane / 16 * 32 + lane % 16;
}

// a11 of one block by one warp: each lane brings its two elements, zeros beyond the row's end. True if all are finite,
// and where f16 has to hold them, if it does.
__device__ inline bool quantize_block(float first, float second, const Quantized& out, std::size_t row, int n_blocks,
                                      int block) {
  const u32 bits = __reduce_max_sync(kAllLanes, max(format::abs_bits(first), format::abs_bits(second)));
  const BlockOutput to(out, bits, row, n_blocks, block);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, element = first_element_of_lane();
  to.q[element] = to.integer(first);
  to.q[element + 16] = to.integer(second);
  to.h[lane] = to.halves(first, second);
  if (lane == 0) to.write_scale();
  return to.is_finite;
}

__host__ __device__ constexpr int hadamard_size(int head_dim) {
  return head_dim & -head_dim;
}

// A stage of the butterfly whose pairs a lane holds, so many elements apart, and one between lanes so many apart.
template <int kPerLane>
__device__ inline void butterfly(float (&x)[kPerLane], int stride) {
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if ((i & stride) != 0) continue;
    const float a = x[i], b = x[i + stride];
    x[i] = a + b;
    x[i + stride] = a - b;
  }
}
template <int kPerLane>
__device__ inline void butterfly_of_lanes(float (&x)[kPerLane], int apart) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const float other = __shfl_xor_sync(kAllLanes, x[i], apart);
    x[i] = (lane & apart) != 0 ? other - x[i] : x[i] + other;
  }
}

// The butterfly over kLanes * kPerLane elements, of which a lane holds kPerLane neighbours: short strides in registers,
// others by shuffles.
template <int kLanes, int kPerLane>
__device__ inline void hadamard_of_lanes(float (&x)[kPerLane]) {
#pragma unroll
  for (int stride = 1; stride < kPerLane; stride *= 2) butterfly(x, stride);
#pragma unroll
  for (int apart = 1; apart < kLanes; apart *= 2) butterfly_of_lanes(x, apart);
}
// In shared memory, aligned to as many elements as a lane holds.
template <typename Vector, int kPerLane>
__device__ inline void hadamard_in_registers(float* memory) {
  alignas(Vector) float x[kPerLane];
  __syncwarp();
  auto* vector = reinterpret_cast<Vector*>(memory) + threadIdx.x % kWarp;
  *reinterpret_cast<Vector*>(x) = *vector;
  hadamard_of_lanes<kWarp>(x);
  *vector = *reinterpret_cast<Vector*>(x);
  __syncwarp();
}

// The unnormalized butterfly in consecutive blocks of `size`, by the lanes of one warp, in shared memory aligned to 16.
__device__ inline void hadamard(float* x, int n, int size) {
  if (n == size && n == 2 * kWarp) return hadamard_in_registers<float2, 2>(x);
  if (n == size && n == 4 * kWarp) return hadamard_in_registers<float4, 4>(x);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int stride = 1; stride < size; stride *= 2) {
    __syncwarp();
    for (int pair = lane; pair < n / 2; pair += kWarp) {
      const int i = pair / stride * 2 * stride + pair % stride;
      const float a = x[i], b = x[i + stride];
      x[i] = a + b;
      x[i + stride] = a - b;
    }
  }
  __syncwarp();
}

// The quantizer of a vector that one warp holds in shared memory.
__device__ inline Quantizer quantizer_of(const float* x, int n, int max) {
  u32 bits = 0;
  for (int i = static_cast<int>(threadIdx.x) % kWarp; i < n; i += kWarp) bits = ::max(bits, format::abs_bits(x[i]));
  return quantizer(__reduce_max_sync(kAllLanes, bits), static_cast<float>(max));
}

}  // namespace nibble::kernels::cuda
