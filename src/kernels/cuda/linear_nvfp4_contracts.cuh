// What the contracts differ in on f16 tensor cores: over how many blocks of 64 a sum goes before it becomes a float,
// and what is then made of it. The kernels are templates over one of these.
#pragma once

#include "kernels/cuda/linear_nvfp4_device.cuh"

namespace nibble::kernels::cuda::nvfp4 {

// Section 4: acc = fma(f32(S), d * g, acc) for each block. Sums come times a power of two, which c takes up unless it
// would overflow.
struct Nc1 {
  static constexpr bool kFree = false;
  static constexpr int kBlocks = 1;
  static constexpr int kPairs = 1;  // that a sum touches
  static constexpr int kActivationMax = format::nc1::kActivationMax;
  static float scale_of(float tensor_scale) { return tensor_scale * 0x1p-10f; }
};

// Section 11: t = f32(S) * 2^-10, t = t * d, t = t * tensor_scale, acc = acc + t for each super-block of 256, the last
// of which may be one pair. The addends +0 of its fma's would only change the sign of a zero, and acc is never -0. The
// first product is exact, and d is far from both ends of f32, so that d takes up 2^-10 and the unit of the sums.
struct Nc1F16 {
  static constexpr bool kFree = false;
  static constexpr int kBlocks = 4;
  static constexpr int kPairs = 2;
  static constexpr int kActivationMax = 127;
  static float scale_of(float tensor_scale) { return tensor_scale; }
  static __device__ float factor(float d, float sum_unit) { return d * (sum_unit * 0x1p-10f); }
  static __device__ float add(float acc, float sum, float factor, float tensor_scale) {
    return acc + (sum * factor) * tensor_scale;
  }
  static __device__ float finish(float acc) { return __half2float(__float2half_rn(acc)); }
};

// Section 13: one sum of f32 over the whole of K.
struct Native {
  static constexpr bool kFree = true;
  static constexpr int kBlocks = 1;
  static constexpr int kPairs = 1;
  static float scale_of(float tensor_scale) { return tensor_scale * 0x1p-10f; }
};

template <typename Contract>
constexpr bool is_nc1_f16 = Contract::kBlocks == 4;

}  // namespace nibble::kernels::cuda::nvfp4
