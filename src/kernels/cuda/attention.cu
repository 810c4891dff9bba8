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
  load_queries(a, s);
  __syncthreads();
  const KeyRange keys = keys_of_tile(a, s);
  if (split < keys.begin / kSplit || split * kSplit >= keys.end) return;
  run_split(a, s, split_of(a, cache, split * kSplit), split);
}

// The fold over the splits, a warp a head of a row.
__global__ void __launch_bounds__(kThreads) attention_merge_kernel(AttentionArgs a) {
  alignas(16) __shared__ float o[kWarps][kMaxHeadDim];
  const int warp = threadIdx.x / kWarp, head = blockIdx.x * kWarps + warp;
  if (head < a.n_heads) merge_head(a, o[warp], blockIdx.y, head);
}

// All splits of one tile. kTiles: fragments of eight dimensions that a warp
// holds.
template <int kTiles>
__global__ void __launch_bounds__(kThreads) attention_kernel(AttentionArgs a) {
  __shared__ Shared s;
  NIBBLE_DYNAMIC_SHARED(float, o_shared, 16);  // [kQueries, head_dim]
  load_queries(a, s);
  if (threadIdx.x < kQueries) {
    s.m[threadIdx.x] = kUnseen;
    s.l[threadIdx.x] = 0.0f;
  }
  __syncthreads();
  const CachePart cache = cache_of_tile(a);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const KeyRange keys = keys_of_tile(a, s);
  float o[kTiles][4] = {};
  for (int first_key = keys.begin / kSplit * kSplit; first_key < keys.end; first_key += kSplit) {
    const SplitView split = split_of(a, cache, first_key);
    const RowPair rows = weigh_split(a, s, split, first_key);
    Factors by[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      by[half] = merge_factors(s.m[g + 8 * half], rows.m[half], rows.e[half]);
    }
    __syncthreads();  // the planes are there, and m has been read
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = g + 8 * half;
      if (warp != 0 || t != 0 || rows.keys[half].end == 0) continue;
      const int m_run = s.m[query];
      s.l[query] = merge_total(s.l[query], rows.r[half], m_run, rows.m[half]);
      s.m[query] = max(m_run, rows.m[half]);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int dim = 8 * (warp + kWarps * tile);
      if (dim >= a.head_dim) break;
      int sums[4];
      weigh_values(s, split, dim, sums);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (rows.keys[i / 2].end != 0) o[tile][i] = merge_output(o[tile][i], sums[i], by[i / 2]);
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
    const cudaError_t error =
        launch_kernel(attention_split_kernel, {dim3(a.n_splits, a.n_kv_heads * parts, tiles), kThreads}, stream, a);
    if (error != cudaSuccess) return error;
    return launch_kernel(attention_merge_kernel, {dim3((a.n_heads + kWarps - 1) / kWarps, a.n_rows), kThreads}, stream,
                         a);
  }
  const auto run = [&](auto kernel) {
    const std::size_t bytes = kQueries * a.head_dim * sizeof(float);
    return launch_kernel(kernel, {dim3(1, a.n_kv_heads * parts, tiles), kThreads, bytes}, stream, a);
  };
  if (a.head_dim <= 64) return run(attention_kernel<2>);
  if (a.head_dim <= 128) return run(attention_kernel<4>);
  return run(attention_kernel<8>);
}

}  // namespace nibble::kernels::cuda
