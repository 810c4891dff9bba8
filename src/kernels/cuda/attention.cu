// Integer attention (section 7): tiles of queries over splits of keys, folded left to right.
#include "kernels/cuda/attention_tile.cuh"

namespace nibble::kernels::cuda {
namespace {

// Step 5 for one row.
struct Factors {
  float old_part;  // a
  float snap;      // o * a below this is zero
  float new_part;  // e * b
};
__device__ inline Factors merge_factors(int m_run, int m_split, float e) {
  const int m = max(m_run, m_split);
  const float a = pow2_or_zero(m_run - m);
  return {a, a < 1.0f ? nc1::kTinyOutput : 0.0f, e * pow2_or_zero(m_split - m)};
}
__device__ inline float merge_output(float o, int sum, const Factors& by) {
  const float old = o * by.old_part;
  return format::fma_rn(static_cast<float>(sum), by.new_part, format::abs_value(old) < by.snap ? 0.0f : old);
}
__device__ inline float merge_total(float l, int r, int m_run, int m_split) {
  const int m = max(m_run, m_split);
  return format::fma_rn(static_cast<float>(r), pow2_or_zero(m_split - m) * format::pow2(-nc1::kSumBits),
                        l * pow2_or_zero(m_run - m));
}

// Step 6 for one head in shared memory, by one warp: o becomes the output, and
// integers of the next layer's input.
__device__ void finish_head(const AttentionArgs& a, float* o, float l, int row, int head) {
  const int lane = threadIdx.x % kWarp, size = hadamard_size(a.head_dim);
  float* out = a.out + (static_cast<std::size_t>(row) * a.n_heads + head) * a.head_dim;
  const float norm = format::div_rn(format::div_rn(1.0f, static_cast<float>(size)), l);
  for (int i = lane; i < a.head_dim; i += kWarp) o[i] = o[i] * norm;
  hadamard(o, a.head_dim, size);
  for (int i = lane; i < a.head_dim; i += kWarp) out[i] = o[i];
  if (a.quantized.q == nullptr) return;
  const int blocks_per_head = a.head_dim / kBlockColumns;
  for (int block = 0; block < blocks_per_head; ++block) {
    const float* x = o + block * kBlockColumns + first_element_of_lane();
    const bool finite =
        quantize_block(x[0], x[16], a.quantized, row, a.n_heads * blocks_per_head, head * blocks_per_head + block);
    if (!finite && lane == 0) raise_flag(a.input_flags, row);
  }
}

struct CachePart {
  const __half* keys;
  const float *key_scales, *value_scales;
  const std::int8_t* values;
};
__device__ inline CachePart cache_of_tile(const AttentionArgs& a) {
  const DeviceRow row = a.rows[static_cast<std::size_t>(blockIdx.z) * a.rows_per_tile];
  const int kv_head = static_cast<int>(blockIdx.y) / parts_of_group(a);
  const std::size_t layer_head = static_cast<std::size_t>(a.layer) * a.n_kv_heads + kv_head;
  const float* scales = row.scales + 2 * layer_head * row.capacity;
  return {row.keys + layer_head * row.capacity * padded_head(a.head_dim), scales, scales + row.capacity,
          row.values + layer_head * row.capacity * a.head_dim};
}

// Brings a split's keys and values into L2 while the queries are being made ready.
__device__ void prefetch_split(const AttentionArgs& a, const CachePart& cache, int first_key) {
  constexpr int kLine = 128;
  if (first_key > a.rows[static_cast<std::size_t>(blockIdx.z) * a.rows_per_tile].pos) return;
  const auto prefetch = [](const void* memory, int bytes) {
    for (int i = static_cast<int>(threadIdx.x) * kLine; i < bytes; i += kThreads * kLine) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(memory) + i));
    }
  };
  const int width = padded_head(a.head_dim);
  prefetch(cache.keys + static_cast<std::size_t>(first_key) * width, kSplit * width * static_cast<int>(sizeof(__half)));
  prefetch(cache.values + static_cast<std::size_t>(first_key) * a.head_dim, kSplit * a.head_dim);
}

__device__ inline int keys_of_tile(const Shared& s) {
  int n = 0;
  for (int i = 0; i < kQueries; ++i) n = max(n, s.n_keys[i]);
  return n;
}

// One split of one tile; its integers go to memory.
__global__ void __launch_bounds__(kThreads) attention_split_kernel(AttentionArgs a) {
  __shared__ Shared s;
  const CachePart cache = cache_of_tile(a);
  const int split = blockIdx.x, first_key = split * kSplit;
  prefetch_split(a, cache, first_key);
  load_queries(a, s);
  __syncthreads();
  if (first_key >= keys_of_tile(s)) return;
  const RowPair rows = weigh_split(a, s, cache.keys, cache.key_scales, cache.value_scales, first_key);
  __syncthreads();

  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int ints = partial_ints(a.head_dim);
  std::int32_t* out[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Query query = query_of(a, g + 8 * half);
    if (query.row < 0 || rows.n_keys[half] == 0) continue;
    out[half] =
        a.partial + ((static_cast<std::size_t>(query.row) * a.n_heads + query.head) * a.n_splits + split) * ints;
    if (warp != 0 || t != 0) continue;
    out[half][a.head_dim] = rows.m[half];
    out[half][a.head_dim + 1] = rows.r[half];
    out[half][a.head_dim + 2] = __float_as_int(rows.e[half]);
  }
#pragma unroll 4
  for (int dim = 8 * warp; dim < a.head_dim; dim += 8 * kWarps) {
    int sums[4];
    weigh_values(a, s, cache.values + static_cast<std::size_t>(first_key) * a.head_dim, dim, sums);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (out[half] == nullptr) continue;
      *reinterpret_cast<int2*>(out[half] + dim + 2 * t) = make_int2(sums[2 * half], sums[2 * half + 1]);
    }
  }
}

// The fold over the splits of one head of one row.
__global__ void __launch_bounds__(kMaxHeadDim) attention_merge_kernel(AttentionArgs a) {
  __shared__ float o_shared[kMaxHeadDim];
  const int head = blockIdx.x, row = blockIdx.y, dim = threadIdx.x;
  const std::size_t which = static_cast<std::size_t>(row) * a.n_heads + head;
  const int ints = partial_ints(a.head_dim);
  const std::int32_t* partial = a.partial + which * a.n_splits * ints;
  const int n_splits = (a.rows[row].pos + kSplit) / kSplit;
  int m_run = partial[a.head_dim];
  float o = 0.0f, l = 0.0f;
#pragma unroll 8  // so that loads of several splits are on their way
  for (int split = 0; split < n_splits; ++split, partial += ints) {
    const int m = partial[a.head_dim], r = partial[a.head_dim + 1];
    const Factors by = merge_factors(m_run, m, __int_as_float(partial[a.head_dim + 2]));
    if (dim < a.head_dim) o = merge_output(o, partial[dim], by);
    l = merge_total(l, r, m_run, m);
    m_run = max(m_run, m);
  }
  if (dim < a.head_dim) o_shared[dim] = o;
  __syncthreads();
  if (dim < kWarp) finish_head(a, o_shared, l, row, head);
}

// All splits of one tile. kTiles: fragments of eight dimensions that a warp
// holds.
template <int kTiles>
__global__ void __launch_bounds__(kThreads) attention_kernel(AttentionArgs a) {
  __shared__ Shared s;
  extern __shared__ float o_shared[];  // [kQueries, head_dim]
  load_queries(a, s);
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
    attention_merge_kernel<<<dim3(a.n_heads, a.n_rows), (a.head_dim + kWarp - 1) / kWarp * kWarp, 0, stream>>>(a);
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

}  // namespace nibble::kernels::cuda
