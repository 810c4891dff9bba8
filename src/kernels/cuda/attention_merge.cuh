// The splits of attention: the sums of one, and the fold over all (section 7, steps 5 and 6).
#pragma once

#include "kernels/cuda/attention_tile.cuh"

namespace nibble::kernels::cuda {

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
__device__ inline float merge_output(float o, float sum, const Factors& by) {
  const float old = o * by.old_part;
  return format::fma_rn(sum, by.new_part, format::abs_value(old) < by.snap ? 0.0f : old);
}
__device__ inline float merge_output(float o, int sum, const Factors& by) {
  return merge_output(o, static_cast<float>(sum), by);
}
__device__ inline float merge_total(float l, int r, int m_run, int m_split) {
  const int m = max(m_run, m_split);
  return format::fma_rn(static_cast<float>(r), pow2_or_zero(m_split - m) * format::pow2(-nc1::kSumBits),
                        l * pow2_or_zero(m_run - m));
}

// Step 6 for one head in shared memory, by one warp: o becomes the output, and
// integers of the next layer's input.
__device__ inline void finish_head(const AttentionArgs& a, float* o, float l, int row, int head) {
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
__device__ inline CachePart cache_of(const AttentionArgs& a, int of_row, int kv_head) {
  const DeviceRow row = a.rows[of_row];
  const std::size_t layer_head = static_cast<std::size_t>(a.layer) * a.n_kv_heads + kv_head;
  const float* scales = row.scales + 2 * layer_head * row.capacity;
  return {row.keys + layer_head * row.capacity * padded_head(a.head_dim), scales, scales + row.capacity,
          row.values + layer_head * row.capacity * a.head_dim};
}
__device__ inline CachePart cache_of_tile(const AttentionArgs& a) {
  return cache_of(a, static_cast<int>(blockIdx.z) * a.rows_per_tile, static_cast<int>(blockIdx.y) / parts_of_group(a));
}

// Brings a split's keys and values into L2 while the queries are being made ready.
__device__ inline void prefetch_split(const AttentionArgs& a, const CachePart& cache, int first_key) {
  constexpr int kLine = 128;
  const int n_keys = a.rows[static_cast<std::size_t>(blockIdx.z) * a.rows_per_tile].pos + 1;
  if (first_key >= n_keys || first_key + kSplit <= first_key_of(a, n_keys)) return;
  const auto prefetch = [](const void* memory, int bytes) {
    for (int i = static_cast<int>(threadIdx.x) * kLine; i < bytes; i += kThreads * kLine) {
      prefetch_to_l2(static_cast<const char*>(memory) + i);
    }
  };
  const int width = padded_head(a.head_dim);
  prefetch(cache.keys + static_cast<std::size_t>(first_key) * width, kSplit * width * static_cast<int>(sizeof(__half)));
  prefetch(cache.values + static_cast<std::size_t>(first_key) * a.head_dim, kSplit * a.head_dim);
}

// From the first key to the last that any query of the tile sees.
__device__ inline KeyRange keys_of_tile(const AttentionArgs& a, const Shared& s) {
  KeyRange keys = {INT_MAX, 0};
  for (int i = 0; i < kQueries; ++i) {
    if (s.n_keys[i] == 0) continue;
    keys.begin = min(keys.begin, first_key_of(a, s.n_keys[i]));
    keys.end = max(keys.end, s.n_keys[i]);
  }
  return keys;
}

// The fold over the splits of one head whose sums lie in a.partial, by one warp. The factors of 32 splits are made at
// once, one a lane (m before a split is a running maximum), and sums of sixteen splits are on their way before the
// first is used: the chain itself is two instructions a split.
template <int kVectors>  // of four dimensions, a lane
__device__ inline void merge_head(const AttentionArgs& a, float* o_shared, int row, int head) {
  constexpr int kAhead = 16 / kVectors;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, ints = partial_ints(a.head_dim);
  const std::int32_t* partial = a.partial + (static_cast<std::size_t>(row) * a.n_heads + head) * a.n_splits * ints;
  const int n_splits = splits_of_row(a, row).count;
  float o[kVectors][4] = {}, l = 0.0f;
  int m_run = kUnseen;
  for (int first = 0; first < n_splits; first += kWarp) {
    int4 tail = {kUnseen, 0, 0, 0};  // m, R, bits of e
    if (first + lane < n_splits) {
      tail =
          __ldcg(reinterpret_cast<const int4*>(partial + static_cast<std::size_t>(first + lane) * ints + a.head_dim));
    }
    int4 sums[kAhead][kVectors];
    const int n = min(kWarp, n_splits - first);
    const auto load = [&](int base) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
#pragma unroll
        for (int vector = 0; vector < kVectors; ++vector) {
          const int dim = 4 * (lane + kWarp * vector);
          if (base + i < n && dim < a.head_dim) {
            sums[i][vector] = __ldcg(
                reinterpret_cast<const int4*>(partial + static_cast<std::size_t>(first + base + i) * ints + dim));
          } else {
            sums[i][vector] = {};
          }
        }
      }
    };
    load(0);
    if (first == 0) m_run = __shfl_sync(kAllLanes, tail.x, 0);
    int m_after = max(tail.x, m_run);
#pragma unroll
    for (int apart = 1; apart < kWarp; apart *= 2) {
      const int earlier = __shfl_up_sync(kAllLanes, m_after, apart);
      if (lane >= apart) m_after = max(m_after, earlier);
    }
    int m_before = __shfl_up_sync(kAllLanes, m_after, 1);
    if (lane == 0) m_before = m_run;
    m_run = __shfl_sync(kAllLanes, m_after, kWarp - 1);
    const Factors mine = merge_factors(m_before, tail.x, __int_as_float(tail.z));
    const float total_part = pow2_or_zero(tail.x - m_after) * format::pow2(-nc1::kSumBits);
    const float total = static_cast<float>(tail.y);
    for (int base = 0; base < n; base += kAhead) {
      if (base != 0) load(base);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (base + i >= n) break;
        const Factors by = {__shfl_sync(kAllLanes, mine.old_part, base + i),
                            __shfl_sync(kAllLanes, mine.snap, base + i),
                            __shfl_sync(kAllLanes, mine.new_part, base + i)};
        l = format::fma_rn(__shfl_sync(kAllLanes, total, base + i), __shfl_sync(kAllLanes, total_part, base + i),
                           l * by.old_part);
#pragma unroll
        for (int vector = 0; vector < kVectors; ++vector) {
          o[vector][0] = merge_output(o[vector][0], sums[i][vector].x, by);
          o[vector][1] = merge_output(o[vector][1], sums[i][vector].y, by);
          o[vector][2] = merge_output(o[vector][2], sums[i][vector].z, by);
          o[vector][3] = merge_output(o[vector][3], sums[i][vector].w, by);
        }
      }
    }
  }
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int dim = 4 * (lane + kWarp * vector);
    if (dim < a.head_dim) {
      *reinterpret_cast<float4*>(o_shared + dim) = {o[vector][0], o[vector][1], o[vector][2], o[vector][3]};
    }
  }
  __syncwarp();
  finish_head(a, o_shared, l, row, head);
}
__device__ inline void merge_head(const AttentionArgs& a, float* o_shared, int row, int head) {
  if (a.head_dim <= 4 * kWarp) return merge_head<1>(a, o_shared, row, head);
  merge_head<2>(a, o_shared, row, head);
}

__device__ inline SplitView split_of(const AttentionArgs& a, const CachePart& cache, int first_key) {
  const int width = padded_head(a.head_dim);
  return {cache.keys + static_cast<std::size_t>(first_key) * width,
          width,
          reinterpret_cast<const u32*>(cache.values + static_cast<std::size_t>(first_key) * a.head_dim),
          a.head_dim,
          cache.key_scales + first_key,
          cache.value_scales + first_key};
}

// One split of one tile: its integers go to a.partial.
__device__ inline void run_split(const AttentionArgs& a, Shared& s, const SplitView& view, int split) {
  const RowPair rows = weigh_split(a, s, view, split * kSplit);
  __syncthreads();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int ints = partial_ints(a.head_dim);
  std::int32_t* out[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Query query = query_of(a, g + 8 * half);
    if (query.row < 0 || rows.keys[half].end == 0) continue;
    const std::size_t head = static_cast<std::size_t>(query.row) * a.n_heads + query.head;
    out[half] = a.partial + (head * a.n_splits + split - first_key_of(a, s.n_keys[g + 8 * half]) / kSplit) * ints;
    if (warp != 0 || t != 0) continue;
    *reinterpret_cast<int4*>(out[half] + a.head_dim) =
        make_int4(rows.m[half], rows.r[half], __float_as_int(rows.e[half]), 0);
  }
#pragma unroll 4
  for (int dim = 8 * warp; dim < a.head_dim; dim += 8 * kWarps) {
    int sums[4];
    weigh_values(s, view, dim, sums);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (out[half] == nullptr) continue;
      *reinterpret_cast<int2*>(out[half] + dim + 2 * t) = make_int2(sums[2 * half], sums[2 * half + 1]);
    }
  }
}

}  // namespace nibble::kernels::cuda
