// Rotation of queries and keys (section 8), and the way of keys and values into
// the cache (section 7, steps 1 and 2).
#include "kernels/cuda/device_math.cuh"

namespace nibble::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;

// One head by one warp, in place, in whichever memory.
__device__ void rotate(float* head, const float* cos_sin, int rotary_dim, bool interleaved) {
  const int n_pairs = rotary_dim / 2;
  for (int pair = threadIdx.x % kWarp; pair < n_pairs; pair += kWarp) {
    float* first = head + (interleaved ? 2 * pair : pair);
    float* second = first + (interleaved ? 1 : n_pairs);
    const float x = *first, y = *second, c = cos_sin[2 * pair], s = cos_sin[2 * pair + 1];
    *first = format::fma_rn(x, c, -(y * s));
    *second = format::fma_rn(x, s, y * c);
  }
}

__device__ inline const float* cos_sin_of(const RopeArgs& a, int row) {
  return a.cos_sin + static_cast<std::size_t>(a.rows[row].pos) * a.rotary_dim;
}

__global__ void __launch_bounds__(kThreads) rope_kernel(RopeArgs a) {
  const int row = blockIdx.y, head = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (head >= a.n_heads) return;
  float* x = a.x + (static_cast<std::size_t>(row) * a.n_heads + head) * a.head_dim;
  rotate(x, cos_sin_of(a, row), a.rotary_dim, a.interleaved);
}

// Quantizes a vector of shared memory and stores it, by one warp.
__device__ void store_head(const StoreKvArgs& a, float* x, int row, int head, bool is_value) {
  const int lane = threadIdx.x % kWarp;
  hadamard(x, a.head_dim, hadamard_size(a.head_dim));
  const Quantizer by = quantizer_of(x, a.head_dim, is_value ? format::nc1::kValueMax : format::nc1::kKeyMax);
  const DeviceRow slot = a.rows[row];
  const std::size_t layer_head = static_cast<std::size_t>(a.layer) * a.n_kv_heads + head;
  const std::size_t pos = slot.pos;
  if (is_value) {
    std::int8_t* values = slot.values + layer_head * slot.capacity * a.head_dim + pos / 4 * 4 * a.head_dim + pos % 4;
    for (int i = lane; i < a.head_dim; i += kWarp) values[4 * i] = static_cast<std::int8_t>(quantize(x[i], by));
  } else {
    const int width = padded_head(a.head_dim);
    __half* key = slot.keys + (layer_head * slot.capacity + pos) * width;
    for (int i = lane; i < width; i += kWarp) {
      key[i] = __int2half_rn(i < a.head_dim ? quantize(x[i], by) : 0);
    }
  }
  if (lane == 0) {
    slot.scales[(2 * layer_head + (is_value ? 1 : 0)) * slot.capacity + pos] = by.scale;
    if (by.is_nonfinite) raise_flag(a.flags, row);
  }
}

// A warp takes one head of one row: those of the queries, if there are any,
// then the keys, then the values.
__global__ void __launch_bounds__(kThreads) rope_store_kv_kernel(RopeStoreKvArgs a) {
  __shared__ float vectors[kWarps][kMaxHeadDim];
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
  store_head(kv, x, row, head, is_value);
}

}  // namespace

cudaError_t launch(const RopeArgs& a, cudaStream_t stream) {
  rope_kernel<<<dim3((a.n_heads + kWarps - 1) / kWarps, a.n_rows), kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

cudaError_t launch(const RopeStoreKvArgs& a, cudaStream_t stream) {
  const int n_heads = a.q.n_heads + 2 * a.kv.n_kv_heads;
  rope_store_kv_kernel<<<dim3((n_heads + kWarps - 1) / kWarps, a.kv.n_rows), kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace nibble::kernels::cuda
