// A step of decoding: rotation, the cache and all of attention (sections 7 and 8) in one launch. Every row is a
// sequence by itself, and its splits are spread over as many thread blocks as the GPU holds at once; one walks its
// splits with the next on its way. The block of the split that the new position falls into stores its key and value.
// A few splits are folded by the block that ends last, many by a second kernel.
#include <algorithm>

#include "kernels/cuda/attention_fold.cuh"

namespace nibble::kernels::cuda {
namespace {

// Divisions that are the host's.
struct DecodeGroups {
  int group, parts;  // queries of a key-value head, thread blocks that share them
};

// The queries of a thread block.
struct DecodeTile {
  int row, kv_head, first_head, n_queries;
  __device__ explicit DecodeTile(const DecodeGroups& by) {
    row = static_cast<int>(blockIdx.z);
    kv_head = static_cast<int>(blockIdx.y);
    int first = 0;
    if (by.parts > 1) {
      first = kv_head % by.parts * kDecodeQueries;
      kv_head /= by.parts;
    }
    first_head = kv_head * by.group + first;
    n_queries = min(kDecodeQueries, by.group - first);
  }
};

// Whether this thread block is the last of n to get here; what the others wrote before is then visible.
__device__ bool is_last_block(int* arrived, int n) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = add_acquire_release(arrived, 1) == n - 1;
    if (is_last) *arrived = 0;  // for the next launch
  }
  __syncthreads();
  return is_last;
}

// The new key and value, into the cache and into the copy of their split, by all threads.
template <int kHeadDim>
__device__ inline void store_new(const DecodeArgs& d, const DecodeTile& tile, const DecodeShared& s,
                                 const DecodeLayout<kHeadDim>& layout, const float* scales, unsigned char* stage) {
  const AttentionArgs& a = d.attention;
  const DeviceRow slot = a.rows[tile.row];
  const std::size_t layer_head = static_cast<std::size_t>(a.layer) * a.n_kv_heads + tile.kv_head;
  const std::size_t pos = slot.pos;
  const int at = slot.pos % kSplit, width = padded_head(a.head_dim), i = static_cast<int>(threadIdx.x);
  const __half *key = s.integers + kDecodeQueries * layout.integer_stride(), *value = key + layout.integer_stride();
  if (i < width) {
    slot.keys[(layer_head * slot.capacity + pos) * width + i] = key[i];
    reinterpret_cast<__half*>(stage)[layout.key_at(at, i)] = key[i];
  }
  if (i < a.head_dim) {
    const auto integer = static_cast<std::int8_t>(__half2float(value[i]));
    slot.values[(layer_head * slot.capacity + pos / 4 * 4) * a.head_dim + 4 * i + pos % 4] = integer;
    reinterpret_cast<std::int8_t*>(stage + layout.values)[layout.value_at(at / 4, i) * 4 + at % 4] = integer;
  }
  if (i < 2) {
    slot.scales[(2 * layer_head + i) * slot.capacity + pos] = scales[i];
    reinterpret_cast<float*>(stage + layout.scales)[i * kSplit + at] = scales[i];
  }
}

// The fold of a query whose splits all come by.
struct RunningHead {
  int m;
  float l;
  Factors by;  // of the split at hand
  __device__ void add(const SplitTail& tail, bool is_first) {
    const int m_run = is_first ? tail.m : m;
    by = merge_factors(m_run, tail.m, tail.e);
    l = merge_total(is_first ? 0.0f : l, tail.r, m_run, tail.m);
    m = max(m_run, tail.m);
  }
};

template <int kHeadDim, bool kWide>
__global__ void __launch_bounds__(kDecodeThreads, 2) attention_decode_kernel(DecodeArgs d, DecodeGroups groups) {
  NIBBLE_DYNAMIC_SHARED(unsigned char, memory, 16);
  __shared__ float head_scales[kDecodeQueries + 2];  // of the queries, of the new key and the new value
  __shared__ RunningHead running[kDecodeQueries];
  if (kHeadDim != 0) d.attention.head_dim = d.kv.head_dim = kHeadDim;
  const AttentionArgs& a = d.attention;
  const DecodeTile tile(groups);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int row = tile.row, n_queries = tile.n_queries, pos = a.rows[row].pos;
  const int block = static_cast<int>(blockIdx.x), n_blocks = static_cast<int>(gridDim.x);
  const SplitRange splits = splits_of_row(a, row);
  if (block >= splits.count) return;
  const DecodeLayout<kHeadDim> layout(a.head_dim, min(kDecodeQueries, groups.group), d.n_stages);
  const DecodeShared s(memory, layout);
  const CachePart cache = cache_of(a, row, tile.kv_head);
  const auto fetch = [&](int index, int stage) {
    if (index < splits.count) {
      fetch_split<kHeadDim>(a, split_of(a, cache, (splits.first + index) * kSplit), memory + stage * layout.stage,
                            layout);
    }
    commit_copies();
  };
#pragma unroll 1
  for (int i = 0; i < d.n_stages; ++i) fetch(block + i * n_blocks, i);
  // So far nothing that a kernel of this step writes: rows are uploaded before the first one, and of the cache only the
  // new position changes, which the thread block of its split puts into its copy below.
  wait_for_predecessors();

  // The block that sees the new position brings its key and value as well.
  const int last = splits.count - 1;
  const bool has_new = last % n_blocks == block, has_all = n_blocks == 1 || last == 0;
#pragma unroll 1
  for (int vector = warp; vector < n_queries + (has_new ? 2 : 0); vector += kDecodeWarps) {
    const int kind = max(vector - n_queries + 1, 0);  // query, key, value
    const std::size_t kv_at = (static_cast<std::size_t>(row) * a.n_kv_heads + tile.kv_head) * a.head_dim;
    const std::size_t q_at = (static_cast<std::size_t>(row) * a.n_heads + tile.first_head + vector) * a.head_dim;
    const HeadSource from = {kind == 0   ? a.q + q_at
                             : kind == 1 ? d.kv.k + kv_at
                                         : d.kv.v + kv_at,
                             kind == 2 ? nullptr : d.cos_sin + static_cast<std::size_t>(pos) * d.rotary_dim,
                             d.rotary_dim, d.interleaved,
                             kind == 0   ? nc1::kQueryMax
                             : kind == 1 ? nc1::kKeyMax
                                         : nc1::kValueMax};
    const int slot = kind == 0 ? vector : kDecodeQueries + kind - 1;
    const Quantizer quantizer = quantize_head<kHeadDim>(from, s.integers + slot * layout.integer_stride(), a.head_dim);
    if (lane == 0) {
      head_scales[slot] = quantizer.scale;
      if (quantizer.is_nonfinite && kind == 0) raise_flag(a.flags, row);
      if (quantizer.is_nonfinite && kind != 0) raise_flag(d.kv.flags, row);
    }
  }
  __syncthreads();
  const QueryColumns<kHeadDim> columns(s.integers, layout.integer_stride());

  for (int index = block, stage = 0; index < splits.count; index += n_blocks) {
    const int split = splits.first + index;
    const SplitView view = stage_view(memory, layout, stage);
    if (d.n_stages == 1) {
      wait_copies<0>();
    } else {
      wait_copies<1>();
    }
    if (index + n_blocks >= splits.count) let_successors_start();
    __syncthreads();
    if (index == last) {
      store_new(d, tile, s, layout, head_scales + kDecodeQueries, memory + stage * layout.stage);
      __syncthreads();
    }
    float score[4];
    columns.scores(layout, view.keys + warp * kFragmentRows * layout.key_stride, padded_head(a.head_dim), score);
    put_scores(score, s.scores, n_queries);
    __syncthreads();
    const auto partial_of = [&](int query) {
      const std::size_t head = static_cast<std::size_t>(row) * a.n_heads + tile.first_head + query;
      return a.partial + (head * a.n_splits + index) * partial_ints(a.head_dim);
    };
    if (warp < n_queries) {
      bool is_nan = false;
      const KeyRange keys = keys_of_split(a, pos + 1, split * kSplit);
      const SplitTail tail = weigh_query(a, s.scores + warp * kScoreStride, view, head_scales[warp], keys, is_nan);
      if (is_nan) raise_flag(a.flags, row);
      if (lane == 0 && has_all) running[warp].add(tail, index == 0);
      if (lane == 0 && !has_all) {
        *reinterpret_cast<int4*>(partial_of(warp) + a.head_dim) = make_int4(tail.m, tail.r, __float_as_int(tail.e), 0);
      }
    }
    __syncthreads();
#pragma unroll 1
    for (int dim = warp * kFragmentRows; dim < a.head_dim; dim += kDecodeWarps * kFragmentRows) {
      weigh_values<kHeadDim, kWide>(layout, s.scores, view.values, dim, [&](int query, int at, float x, float y) {
        if (query >= n_queries || at >= a.head_dim) return;
        if (has_all) {
          float* o = s.outputs + query * layout.vector + at;
          const Factors by = running[query].by;
          o[0] = merge_output(index == 0 ? 0.0f : o[0], x, by);
          o[1] = merge_output(index == 0 ? 0.0f : o[1], y, by);
        } else {
          *reinterpret_cast<int2*>(partial_of(query) + at) = make_int2(__float_as_int(x), __float_as_int(y));
        }
      });
    }
    __syncthreads();
    fetch(index + d.n_stages * n_blocks, stage);
    stage = stage + 1 == d.n_stages ? 0 : stage + 1;
  }

  if (has_all) {
    if (warp < n_queries)
      finish_head(a, s.outputs + warp * layout.vector, running[warp].l, row, tile.first_head + warp);
    return;
  }
  if (d.fold_piece != 0) return;
  wait_copies<0>();
  int* arrived = d.arrived + static_cast<std::size_t>(row) * gridDim.y + blockIdx.y;
  if (!is_last_block(arrived, min(splits.count, n_blocks))) return;
  fold_heads(a, {row, tile.first_head, n_queries}, splits.count, reinterpret_cast<float*>(memory),
             FoldLayout(a.head_dim, n_queries, kFoldAhead, 1));
}

// Many splits: a thread block a head of a row.
__global__ void __launch_bounds__(kDecodeThreads) attention_fold_kernel(AttentionArgs a, int piece) {
  NIBBLE_DYNAMIC_SHARED(unsigned char, memory, 16);
  wait_for_predecessors();
  let_successors_start();
  const int head = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y), n = splits_of_row(a, row).count;
  if (n == 1) return;  // done by the thread block of that split
  fold_heads(a, {row, head, 1}, n, reinterpret_cast<float*>(memory), FoldLayout(a.head_dim, 1, piece, 2));
}

int parts_of(const AttentionArgs& a) {
  return (a.n_heads / a.n_kv_heads + kDecodeQueries - 1) / kDecodeQueries;
}
bool is_known(const DecodeArgs& d) {
  const int head_dim = d.attention.head_dim;
  return d.rotary_dim == head_dim && (head_dim == 64 || head_dim == 128);
}
// Of dynamic shared memory.
int decode_bytes(const DecodeArgs& d, int n_stages) {
  const AttentionArgs& a = d.attention;
  const int n_queries = std::min(a.n_heads / a.n_kv_heads, kDecodeQueries);
  return is_known(d) ? DecodeLayout<64>(a.head_dim, n_queries, n_stages).bytes
                     : DecodeLayout<0>(a.head_dim, n_queries, n_stages).bytes;
}

}  // namespace

bool plan(DecodeArgs& d, const GpuExtent& gpu) {
  constexpr int kReserved = 1024;  // of shared memory, by the system, a thread block
  const AttentionArgs& a = d.attention;
  const int fixed = is_known(d) ? 1024 : 9 << 10;  // of shared memory, at most, whatever the shape
  const auto bytes = [&](int n_stages) { return decode_bytes(d, n_stages) + fixed; };
  d.n_stages = bytes(2) <= gpu.shared_bytes ? 2 : 1;
  if (bytes(d.n_stages) > gpu.shared_bytes) return false;
  const int per_multiprocessor = std::clamp((gpu.shared_bytes + kReserved) / (bytes(d.n_stages) + kReserved), 1, 2);
  const int tiles = a.n_rows * a.n_kv_heads * parts_of(a), blocks = per_multiprocessor * gpu.n_multiprocessors;
  // Two splits are sooner walked than folded.
  d.n_blocks = a.n_splits <= 2 ? 1 : std::clamp(blocks / tiles, 1, a.n_splits);
  if (d.n_blocks == a.n_splits) d.n_stages = 1;  // nobody has a second split, and others have the memory

  const int n_queries = std::min(a.n_heads / a.n_kv_heads, kDecodeQueries);
  d.fold_piece = 0;
  if (d.n_blocks == 1) return true;
  if (a.n_splits > kFoldAhead ||
      FoldLayout(a.head_dim, n_queries, kFoldAhead, 1).bytes() > decode_bytes(d, d.n_stages)) {
    d.fold_piece = 8 * kFoldAhead;
    while (FoldLayout(a.head_dim, 1, d.fold_piece, 2).bytes() + kReserved > gpu.shared_bytes) d.fold_piece /= 2;
  }
  return true;
}

int n_counters(const DecodeArgs& d) {
  return d.attention.n_rows * d.attention.n_kv_heads * parts_of(d.attention);
}

cudaError_t launch(const DecodeArgs& d, cudaStream_t stream) {
  const AttentionArgs& a = d.attention;
  LaunchShape shape = {dim3(d.n_blocks, a.n_kv_heads * parts_of(a), a.n_rows), kDecodeThreads,
                       static_cast<std::size_t>(decode_bytes(d, d.n_stages))};
  shape.starts_early = true;
  const auto run = [&](auto kernel) {
    return launch_kernel(kernel, shape, stream, d, DecodeGroups{a.n_heads / a.n_kv_heads, parts_of(a)});
  };
  const auto by_width = [&]<int kHeadDim>() {
    const bool is_wide = a.n_heads / a.n_kv_heads > kDecodeQueries / 2;
    return is_wide ? run(attention_decode_kernel<kHeadDim, true>) : run(attention_decode_kernel<kHeadDim, false>);
  };
  const cudaError_t error = !is_known(d)       ? by_width.template operator()<0>()
                            : a.head_dim == 64 ? by_width.template operator()<64>()
                                               : by_width.template operator()<128>();
  if (error != cudaSuccess || d.fold_piece == 0) return error;
  LaunchShape fold = {dim3(a.n_heads, a.n_rows), kDecodeThreads,
                      static_cast<std::size_t>(FoldLayout(a.head_dim, 1, d.fold_piece, 2).bytes())};
  fold.starts_early = true;
  return launch_kernel(attention_fold_kernel, fold, stream, a, d.fold_piece);
}

}  // namespace nibble::kernels::cuda
