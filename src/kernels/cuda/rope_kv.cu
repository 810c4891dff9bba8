// Rotation of queries and keys (section 8), and the way of keys and values into
// the cache (section 7, steps 1 and 2).
#include "kernels/cuda/rope_kv.cuh"

namespace nibble::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;

__device__ inline const float* cos_sin_of(const RopeArgs& a, int row) {
  return a.cos_sin + static_cast<std::size_t>(a.rows[row].pos) * a.rotary_dim;
}

__global__ void __launch_bounds__(kThreads) rope_kernel(RopeArgs a) {
  const int row = blockIdx.y, head = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (head >= a.n_heads) return;
  float* x = a.x + (static_cast<std::size_t>(row) * a.n_heads + head) * a.head_dim;
  rotate(x, cos_sin_of(a, row), a.rotary_dim, a.interleaved);
}

// A warp takes one head of one row: those of the queries, if there are any,
// then the keys, then the values.
__global__ void __launch_bounds__(kThreads) rope_store_kv_kernel(RopeStoreKvArgs a) {
  alignas(16) __shared__ float vectors[kWarps][kMaxHeadDim];
  const StoreKvArgs& kv = a.kv;
  const int lane = threadIdx.x % kWarp, row = blockIdx.y;
  int index = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (index < a.q.n_heads) {
    float* q = a.q.x + (static_cast<std::size_t>(row) * a.q.n_heads + index) * a.q.head_dim;
    return rotate(q, cos_sin_of(a.q, row), a.q.rotary_dim, a.q.interleaved);
  }
  index -= a.q.n_heads;
  if (index >= 2 * kv.n_kv_heads) return;  // a whole warp; only warps synchronize below
  const bool is_value = index >= kv.n_kv_heads, is_rotated = !is_value && a.q.cos_sin != nullptr;
  const int head = index % kv.n_kv_heads;
  float* x = vectors[threadIdx.x / kWarp];
  const std::size_t at = (static_cast<std::size_t>(row) * kv.n_kv_heads + head) * kv.head_dim;
  const float* source = (is_value ? kv.v : kv.k) + at;
  for (int i = lane; i < kv.head_dim; i += kWarp) x[i] = source[i];
  if (is_rotated) {
    __syncwarp();
    rotate(x, cos_sin_of(a.q, row), a.q.rotary_dim, a.q.interleaved);
    __syncwarp();
    for (int i = lane; i < kv.head_dim; i += kWarp) kv.k[at + i] = x[i];
  }
  const Quantizer by = prepare_head(kv, x, is_value);
  write_head(kv, x, by, row, head, is_value);
}

}  // namespace

cudaError_t launch(const RopeArgs& a, cudaStream_t stream) {
  return launch_kernel(rope_kernel, {dim3((a.n_heads + kWarps - 1) / kWarps, a.n_rows), kThreads}, stream, a);
}

cudaError_t launch(const RopeStoreKvArgs& a, cudaStream_t stream) {
  const int n_heads = a.q.n_heads + 2 * a.kv.n_kv_heads;
  return launch_kernel(rope_store_kv_kernel, {dim3((n_heads + kWarps - 1) / kWarps, a.kv.n_rows), kThreads}, stream, a);
}

}  // namespace nibble::kernels::cuda
