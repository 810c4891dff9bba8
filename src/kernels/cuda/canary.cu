// Do the tensor cores of this chip sum as the kernels need it? f16 products in f32 accumulators, chained over a block
// of 64 as attention and linear layers chain them, against integers.
#include "kernels/cuda/device_math.cuh"

namespace nibble::kernels::cuda {
namespace {

constexpr int kDepth = 64;

__device__ u32 hash(u32 x) {  // any mixing of bits will do
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

// Operands whose sums stay below 2^24: uniform; all at their bounds; large ones that cancel around small ones.
__device__ int left(u32 seed, int row, int k) {
  const u32 bits = hash(seed * 4096u + row * 64u + k);
  switch (seed % 3) {
    case 0:
      return static_cast<int>(bits % 511u) - 255;
    case 1:
      return 255 - static_cast<int>(bits % 2u);
    default:
      return k % 8 == 7 ? static_cast<int>(bits % 3u) - 1 : k % 2 == 0 ? 255 : -255;
  }
}
__device__ int right(u32 seed, int k, int column) {
  const u32 bits = hash(~seed * 4096u + column * 64u + k);
  switch (seed % 3) {
    case 0:
      return static_cast<int>(bits % 2047u) - 1023;
    case 1:
      return 1023 - static_cast<int>(bits % 2u);
    default:
      return k % 8 == 7 ? static_cast<int>(bits % 3u) - 1 : 1023 - static_cast<int>(bits % 2u);
  }
}
__device__ u32 pair(int low, int high) {
  const __half2 both = __halves2half2(__int2half_rn(low), __int2half_rn(high));
  return *reinterpret_cast<const u32*>(&both);
}

__global__ void tensor_core_kernel(int* n_wrong) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  const u32 seed = blockIdx.x;
  float sum[4] = {};
  for (int k = 0; k < kDepth; k += 16) {
    const int k0 = k + 2 * t, k1 = k0 + 8;
    const u32 a[4] = {
        pair(left(seed, g, k0), left(seed, g, k0 + 1)), pair(left(seed, g + 8, k0), left(seed, g + 8, k0 + 1)),
        pair(left(seed, g, k1), left(seed, g, k1 + 1)), pair(left(seed, g + 8, k1), left(seed, g + 8, k1 + 1))};
    mma_f16(sum, a, pair(right(seed, k0, g), right(seed, k0 + 1, g)), pair(right(seed, k1, g), right(seed, k1 + 1, g)));
  }
  for (int i = 0; i < 4; ++i) {
    const int row = g + i / 2 * 8, column = 2 * t + i % 2;
    int exact = 0;
    for (int k = 0; k < kDepth; ++k) exact += left(seed, row, k) * right(seed, k, column);
    if (sum[i] != static_cast<float>(exact)) atomicAdd(n_wrong, 1);
  }
}

}  // namespace

cudaError_t launch(const TensorCoreArgs& a, cudaStream_t stream) {
  return launch_kernel(tensor_core_kernel, {a.n_tiles, kWarp}, stream, a.n_wrong);
}

}  // namespace nibble::kernels::cuda
