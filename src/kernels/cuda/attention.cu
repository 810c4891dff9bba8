// Integer attention (section 7): tiles of queries over splits of keys, folded left to right.
#include "kernels/cuda/attention_merge.cuh"

namespace nibble::kernels::cuda {
namespace {

// One split of one tile.
__global__ void __launch_bounds__(kThreads) attention_split_kernel(AttentionArgs a) {
  __shared__ Shared s;
  const CachePart cache = cache_of_tile(a);
  const int split = blockIdx.x;
  prefetch_split(a, cache, split * kSplit);
  load_queries(a, s, {});
  __syncthreads();
  if (split * kSplit < keys_of_tile(s)) run_split(a, s, cache, split);
}

// The fold over the splits, a warp a head of a row.
__global__ void __launch_bounds__(kThreads) attention_merge_kernel(AttentionArgs a) {
  __shared__ alignas(16) float o[kWarps][kMaxHeadDim];
  const int warp = threadIdx.x / kWarp, head = blockIdx.x * kWarps + warp;
  if (head < a.n_heads) merge_head(a, o[warp], blockIdx.y, head);
}

// The new key or value of the row, by one warp.
__device__ void store_new_head(const DecodeArgs& d, Shared& s, const Rotation& rotation, bool is_value) {
  const StoreKvArgs& kv = d.kv;
  float* x = scratch_of_warp(s);
  const int row = blockIdx.z, head = static_cast<int>(blockIdx.y) / parts_of_group(d.attention);
  const float* source = (is_value ? kv.v : kv.k) + (static_cast<std::size_t>(row) * kv.n_kv_heads + head) * kv.head_dim;
  for (int i = threadIdx.x % kWarp; i < kv.head_dim; i += kWarp) x[i] = source[i];
  __syncwarp();
  if (!is_value) rotate(x, rotation.cos_sin, rotation.rotary_dim, rotation.interleaved);
  store_head(kv, x, row, head, is_value);
}

// A step of decoding: rotation, the cache and all of attention in one launch. Every row is a sequence by itself; the
// thread block of the split that the new position falls into stores its key and value first, and the last one to end
// folds the splits.
__global__ void __launch_bounds__(kThreads, 4) attention_decode_kernel(DecodeArgs d) {
  __shared__ Shared s;
  __shared__ bool is_last;
  const AttentionArgs& a = d.attention;
  const int row = blockIdx.z, split = blockIdx.x, warp = threadIdx.x / kWarp;
  const int pos = a.rows[row].pos, n_splits = pos / kSplit + 1;
  if (split >= n_splits) return;
  const CachePart cache = cache_of_tile(a);
  prefetch_split(a, cache, split * kSplit);
  const Rotation rotation = {d.cos_sin + static_cast<std::size_t>(pos) * d.rotary_dim, d.rotary_dim, d.interleaved};
  load_queries(a, s, rotation);
  if (split == n_splits - 1 && warp >= kWarps - 2) store_new_head(d, s, rotation, warp == kWarps - 1);
  __syncthreads();
  run_split(a, s, cache, split);

  const int n_heads = min(kQueries, a.n_heads / a.n_kv_heads - part_of_group(a) * kQueries);
  if (n_splits > 1) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      int* arrived = d.arrived + static_cast<std::size_t>(row) * gridDim.y + blockIdx.y;
      is_last = atomicAdd(arrived, 1) == n_splits - 1;
      if (is_last) *arrived = 0;  // for the next launch
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
  } else {
    __syncthreads();
  }
  for (int i = warp; i < n_heads; i += kWarps) {
    merge_head(a, scratch_of_warp(s), row, query_of(a, i).head);
    __syncwarp();
  }
}

// All splits of one tile. kTiles: fragments of eight dimensions that a warp
// holds.
template <int kTiles>
__global__ void __launch_bounds__(kThreads) attention_kernel(AttentionArgs a) {
  __shared__ Shared s;
  extern __shared__ __align__(16) float o_shared[];  // [kQueries, head_dim]
  load_queries(a, s, {});
  if (threadIdx.x < kQueries) {
    s.m[threadIdx.x] = 0;
    s.l[threadIdx.x] = 0.0f;
  }
  __syncthreads();
  const CachePart cache = cache_of_tile(a);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int n_keys = keys_of_tile(s);
  float o[kTiles][4] = {};
  for (int first_key = 0; first_key < n_keys; first_key += kSplit) {
    const RowPair rows = weigh_split(a, s, cache.keys, cache.key_scales, cache.value_scales, first_key);
    Factors by[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int m_run = first_key == 0 ? rows.m[half] : s.m[g + 8 * half];
      by[half] = merge_factors(m_run, rows.m[half], rows.e[half]);
    }
    __syncthreads();  // the planes are there, and m has been read
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = g + 8 * half;
      if (warp != 0 || t != 0 || rows.n_keys[half] == 0) continue;
      const int m_run = first_key == 0 ? rows.m[half] : s.m[query];
      s.l[query] = merge_total(s.l[query], rows.r[half], m_run, rows.m[half]);
      s.m[query] = max(m_run, rows.m[half]);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int dim = 8 * (warp + kWarps * tile);
      if (dim >= a.head_dim) break;
      int sums[4];
      weigh_values(a, s, cache.values + static_cast<std::size_t>(first_key) * a.head_dim, dim, sums);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (rows.n_keys[i / 2] != 0) o[tile][i] = merge_output(o[tile][i], sums[i], by[i / 2]);
      }
    }
    __syncthreads();  // before the planes are written again
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int dim = 8 * (warp + kWarps * tile);
    if (dim >= a.head_dim) break;
#pragma unroll
    for (int i = 0; i < 4; ++i) o_shared[(g + i / 2 * 8) * a.head_dim + dim + 2 * t + i % 2] = o[tile][i];
  }
  __syncthreads();
  for (int query = warp; query < kQueries; query += kWarps) {
    const Query which = query_of(a, query);
    if (which.row < 0) continue;
    finish_head(a, o_shared + query * a.head_dim, s.l[query], which.row, which.head);
  }
}

}  // namespace

cudaError_t launch(const AttentionArgs& a, cudaStream_t stream) {
  const int group = a.n_heads / a.n_kv_heads;
  const int parts = (group + kQueries - 1) / kQueries;
  const int tiles = (a.n_rows + a.rows_per_tile - 1) / a.rows_per_tile;
  if (a.partial != nullptr) {
    attention_split_kernel<<<dim3(a.n_splits, a.n_kv_heads * parts, tiles), kThreads, 0, stream>>>(a);
    attention_merge_kernel<<<dim3((a.n_heads + kWarps - 1) / kWarps, a.n_rows), kThreads, 0, stream>>>(a);
    return cudaGetLastError();
  }
  const auto run = [&](auto kernel) {
    const int bytes = kQueries * a.head_dim * static_cast<int>(sizeof(float));
    kernel<<<dim3(1, a.n_kv_heads * parts, tiles), kThreads, bytes, stream>>>(a);
    return cudaGetLastError();
  };
  if (a.head_dim <= 64) return run(attention_kernel<2>);
  if (a.head_dim <= 128) return run(attention_kernel<4>);
  return run(attention_kernel<8>);
}

cudaError_t launch(const DecodeArgs& d, cudaStream_t stream) {
  const AttentionArgs& a = d.attention;
  const int parts = (a.n_heads / a.n_kv_heads + kQueries - 1) / kQueries;
  attention_decode_kernel<<<dim3(a.n_splits, a.n_kv_heads * parts, a.n_rows), kThreads, 0, stream>>>(d);
  return cudaGetLastError();
}

}  // namespace nibble::kernels::cuda
