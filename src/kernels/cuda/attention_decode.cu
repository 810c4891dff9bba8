// A step of decoding: rotation, the cache and all of attention (sections 7 and 8) in one launch. Every row is a
// sequence by itself and a thread block takes a split of it. All that it reads is asked for at once, since waiting for
// memory in turn is what a short sequence costs. The block of the split that the new position falls into stores its key
// and value, and the last one to end folds the splits.
#include "kernels/cuda/attention_merge.cuh"

namespace nibble::kernels::cuda {
namespace {

constexpr int kPad = 8;  // elements beyond a row of the split: rows of a fragment in other banks

// What of the thread block's shared memory depends on the shape.
struct DecodeLayout {
  int key_stride, value_stride, vector;  // elements
  int values, scales, vectors, cos_sin, bytes;
  __host__ __device__ DecodeLayout(int head_dim, int rotary_dim, int n_queries) {
    key_stride = padded_head(head_dim) + kPad;
    value_stride = head_dim + kPad;
    vector = (head_dim + 3) / 4 * 4;
    values = kSplit * key_stride * static_cast<int>(sizeof(__half));
    scales = values + kSplit / 4 * value_stride * static_cast<int>(sizeof(u32));
    vectors = scales + 2 * kSplit * static_cast<int>(sizeof(float));
    cos_sin = vectors + (n_queries + 2) * vector * static_cast<int>(sizeof(float));
    bytes = cos_sin + rotary_dim * static_cast<int>(sizeof(float));
  }
};
struct DecodeShared {
  __half* keys;
  u32* values;
  float *key_scales, *value_scales;
  float* vectors;  // [queries of the tile, then the new key and value; layout.vector]
  float* cos_sin;
  __device__ DecodeShared(unsigned char* memory, const DecodeLayout& layout)
      : keys(reinterpret_cast<__half*>(memory)),
        values(reinterpret_cast<u32*>(memory + layout.values)),
        key_scales(reinterpret_cast<float*>(memory + layout.scales)),
        value_scales(key_scales + kSplit),
        vectors(reinterpret_cast<float*>(memory + layout.vectors)),
        cos_sin(reinterpret_cast<float*>(memory + layout.cos_sin)) {}
};

__device__ void fetch_vector(float* to, const float* from, int n) {
  for (int i = threadIdx.x; i < n; i += kThreads) copy_4(to + i, from + i);
}

__device__ void fetch_split(const AttentionArgs& a, const SplitView& from, const DecodeShared& to,
                            const DecodeLayout& layout) {
  const int key_chunks = from.key_stride / 8, value_chunks = a.head_dim / 4;  // of 16 bytes, a row
  for (int i = threadIdx.x; i < kSplit * key_chunks; i += kThreads) {
    copy_16(to.keys + i / key_chunks * layout.key_stride + i % key_chunks * 8, from.keys + i * 8);
  }
  for (int i = threadIdx.x; i < kSplit / 4 * value_chunks; i += kThreads) {
    copy_16(to.values + i / value_chunks * layout.value_stride + i % value_chunks * 4, from.values + i * 4);
  }
  for (int i = threadIdx.x; i < kSplit / 4; i += kThreads) {
    copy_16(to.key_scales + 4 * i, from.key_scales + 4 * i);
    copy_16(to.value_scales + 4 * i, from.value_scales + 4 * i);
  }
}

// Whether this thread block is the last of its queries' splits to get here; what the others wrote is then visible.
__device__ bool is_last_block(int* arrived, int n_splits) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(arrived, 1) == n_splits - 1;
    if (is_last) *arrived = 0;  // for the next launch
    __threadfence();
  }
  __syncthreads();
  return is_last;
}

// kHeadDim: known to the compiler, or 0. Short loops and no divisions matter: one warp a scheduler runs this, and code
// that is not in the instruction cache has to come first.
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 3) attention_decode_kernel(DecodeArgs d) {
  __shared__ Shared s;
  NIBBLE_DYNAMIC_SHARED(unsigned char, memory, 16);
  wait_for_predecessors();
  if (kHeadDim != 0) d.attention.head_dim = d.kv.head_dim = kHeadDim;
  const AttentionArgs& a = d.attention;
  const int row = blockIdx.z, warp = threadIdx.x / kWarp, pos = a.rows[row].pos;
  const SplitRange splits = splits_of_row(a, row);
  if (static_cast<int>(blockIdx.x) >= splits.count) return;
  const int split = splits.first + static_cast<int>(blockIdx.x);
  const int kv_head = static_cast<int>(blockIdx.y) / parts_of_group(a);
  const int n_queries = min(kQueries, a.n_heads / a.n_kv_heads - part_of_group(a) * kQueries);
  const DecodeLayout layout(a.head_dim, d.rotary_dim, min(kQueries, a.n_heads / a.n_kv_heads));
  const DecodeShared to(memory, layout);

  const std::size_t kv_at = (static_cast<std::size_t>(row) * a.n_kv_heads + kv_head) * a.head_dim;
  for (int i = 0; i < n_queries; ++i) {
    const std::size_t q_at = (static_cast<std::size_t>(row) * a.n_heads + query_of(a, i).head) * a.head_dim;
    fetch_vector(to.vectors + i * layout.vector, a.q + q_at, a.head_dim);
  }
  float* new_key = to.vectors + n_queries * layout.vector;
  float* new_value = new_key + layout.vector;
  const bool has_new = split == pos / kSplit;
  if (has_new) {
    fetch_vector(new_key, d.kv.k + kv_at, a.head_dim);
    fetch_vector(new_value, d.kv.v + kv_at, a.head_dim);
  }
  fetch_vector(to.cos_sin, d.cos_sin + static_cast<std::size_t>(pos) * d.rotary_dim, d.rotary_dim);
  commit_copies();
  fetch_split(a, split_of(a, cache_of(a, row, kv_head), split * kSplit), to, layout);
  commit_copies();

  wait_copies<1>();
  __syncthreads();
  // Warps from the first on take queries, from the last on the new value and the new key.
  for (int query = warp; query < kQueries; query += kWarps) {
    if (query >= n_queries) {
      clear_query(a, s, query);
      continue;
    }
    float* x = to.vectors + query * layout.vector;
    rotate(x, to.cos_sin, d.rotary_dim, d.interleaved);
    __syncwarp();
    quantize_query(a, s, x, query, row);
  }
  const bool is_value = warp == kWarps - 1, stores = has_new && warp >= kWarps - 2;
  float* mine = is_value ? new_value : new_key;
  Quantizer by = {0.0f, 0.0f, false};
  if (stores) {
    if (!is_value) rotate(mine, to.cos_sin, d.rotary_dim, d.interleaved);
    __syncwarp();
    by = prepare_head(d.kv, mine, is_value);
  }
  wait_copies<0>();
  let_successors_start();
  __syncthreads();
  if (has_new) {
    const int at = pos % kSplit;
    const HeadCopy copy = {to.keys + at * layout.key_stride,
                           reinterpret_cast<std::int8_t*>(to.values + at / 4 * layout.value_stride) + at % 4,
                           (is_value ? to.value_scales : to.key_scales) + at};
    if (stores) write_head(d.kv, mine, by, row, kv_head, is_value, copy);
    __syncthreads();
  }
  run_split(a, s, {to.keys, layout.key_stride, to.values, layout.value_stride, to.key_scales, to.value_scales}, split,
            n_queries <= kQueries / 2 ? 1 : 2);

  if (splits.count > 1) {
    if (!is_last_block(d.arrived + static_cast<std::size_t>(row) * gridDim.y + blockIdx.y, splits.count)) return;
  } else {
    __syncthreads();
  }
  for (int i = warp; i < n_queries; i += kWarps) {
    merge_head(a, scratch_of_warp(s), row, query_of(a, i).head);
    __syncwarp();
  }
}

}  // namespace

int decode_shared_bytes(int head_dim, int rotary_dim, int group) {
  return DecodeLayout(head_dim, rotary_dim, group < kQueries ? group : kQueries).bytes;
}

cudaError_t launch(const DecodeArgs& d, cudaStream_t stream) {
  const AttentionArgs& a = d.attention;
  const int group = a.n_heads / a.n_kv_heads, parts = (group + kQueries - 1) / kQueries;
  const std::size_t bytes = decode_shared_bytes(a.head_dim, d.rotary_dim, group);
  const auto run = [&](auto kernel) {
    LaunchShape shape = {dim3(a.n_splits, a.n_kv_heads * parts, a.n_rows), kThreads, bytes};
    shape.starts_early = true;
    return launch_kernel(kernel, shape, stream, d);
  };
  if (a.head_dim == 64) return run(attention_decode_kernel<64>);
  if (a.head_dim == 128) return run(attention_decode_kernel<128>);
  return run(attention_decode_kernel<0>);
}

}  // namespace nibble::kernels::cuda
