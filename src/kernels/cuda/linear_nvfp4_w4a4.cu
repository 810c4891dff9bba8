// NVFP4 rows that meet NVFP4 activations (contract w4a4, section 10): one exact integer a row.
#include "kernels/cuda/linear_nvfp4_rows.cuh"

namespace nibble::kernels::cuda {
namespace {

// A warp makes one output of up to kTokens tokens; a lane takes every 32nd group.
template <int kTokens>
__global__ void __launch_bounds__(kWarp* kWarpsPerThreadBlock) linear_w4a4_kernel(LinearW4A4Args a) {
  const int row = blockIdx.x * kWarpsPerThreadBlock + threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int first_token = blockIdx.y * kTokens, n_tokens = min(kTokens, a.n_rows - first_token);
  if (row >= a.weights.n_out) return;
  const Nvfp4RowsFormat weights(a.weights);
  const int n_groups = a.weights.n_in / kLaneElements;

  long long sums[kTokens] = {};
  for (int group = lane; group < n_groups; group += kWarp) {
    const Nvfp4RowsFormat::Packed w = weights.load(row, group * kLaneElements);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      if (t >= n_tokens) break;
      const std::size_t at = static_cast<std::size_t>(first_token + t) * n_groups + group;
      const int4 q = reinterpret_cast<const int4*>(a.input.q1)[at];
      sums[t] += static_cast<long long>(dot_bytes(w.bytes, q) * w.q9) * a.input.q9[at];  // the first < 2^30
    }
  }
  const float inverse = format::div_rn(1.0f, a.weights.input_scale_inv);
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    if (t >= n_tokens) break;
#pragma unroll
    for (int apart = 1; apart < kWarp; apart *= 2) sums[t] += __shfl_xor_sync(kAllLanes, sums[t], apart);
    if (lane != t) continue;
    const float v = ((__ll2float_rn(sums[t]) * 0x1p-20f) * a.weights.tensor_scale) * inverse;
    const float y = format::f16_to_f32(format::f32_to_f16(v));
    a.out[static_cast<std::size_t>(first_token + t) * a.weights.n_out + row] = a.bias != nullptr ? y + a.bias[row] : y;
  }
}

}  // namespace

cudaError_t launch(const LinearW4A4Args& a, cudaStream_t stream) {
  const auto run = [&](auto kernel, int tokens) {
    const dim3 grid((a.weights.n_out + kWarpsPerThreadBlock - 1) / kWarpsPerThreadBlock,
                    (a.n_rows + tokens - 1) / tokens);
    return launch_kernel(kernel, {grid, kWarp * kWarpsPerThreadBlock}, stream, a);
  };
  if (a.n_rows == 1) return run(linear_w4a4_kernel<1>, 1);
  if (a.n_rows <= 4) return run(linear_w4a4_kernel<4>, 4);
  return run(linear_w4a4_kernel<8>, 8);
}

}  // namespace nibble::kernels::cuda
