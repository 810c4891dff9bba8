// A tile of attention (section 7, steps 1 to 4): 16 queries, which share a key-value head and a cache, against a split
// of 128 keys, by a thread block. Its four warps take 32 keys each for the scores and a quarter of the head each for
// the values.
//
// Scores run on f16 tensor cores: |q| <= 255 and |k| <= 1023 are exact, and so is every partial sum of 64 products
// (< 2^24). Values run on the int8 ones, softmax weights (10 bits) in two planes: A = 8 * A_high + A_low.
#pragma once

#include <climits>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/rope_kv.cuh"

namespace nibble::kernels::cuda {

namespace nc1 = format::nc1;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kQueries = 16;  // of a tile
constexpr int kKeysPerWarp = kSplit / kWarps;
constexpr int kKeyTiles = kKeysPerWarp / 8;  // of 8 keys, per warp
constexpr int kUnseen = INT_MIN / 2;
constexpr float kIntegers = 12582912.0f;  // 1.5 * 2^23, whose sums with integers are integers: format::rne
constexpr u32 kIntegerBits = 0x4B400000u;
constexpr int kPlaneStride = kSplit + 16;  // bytes; keeps the eight rows of a fragment in different banks

__device__ inline float pow2_or_zero(int n) {
  return n < nc1::kExponentFloor ? 0.0f : format::pow2(n);
}

// What a tile keeps in shared memory.
struct Shared {
  alignas(16) __half q[kQueries][kMaxHeadDim + 8];
  alignas(16) std::int8_t u_high[kQueries][kPlaneStride];
  alignas(16) std::int8_t u_low[kQueries][kPlaneStride];
  float q_scale[kQueries];
  int n_keys[kQueries];  // that the query sees, were there no window; 0 for a row of the tile that is no query
  // of the split at hand, by warp
  int warp_m[kWarps][kQueries];
  int warp_r[kWarps][kQueries];
  u32 warp_w[kWarps][kQueries];
  // of the fold over splits
  int m[kQueries];
  float l[kQueries];
};

// A split of a cache, in whichever memory.
struct SplitView {
  const __half* keys;  // [kSplit, key_stride]
  int key_stride;
  const u32* values;  // [kSplit / 4, value_stride]: four positions of an element in a word
  int value_stride;
  const float *key_scales, *value_scales;  // [kSplit]
};

// blockIdx: x is the split, y the key-value head and the part of a large group,
// z the tile of token rows.
__device__ inline int parts_of_group(const AttentionArgs& a) {
  return (a.n_heads / a.n_kv_heads + kQueries - 1) / kQueries;
}

__device__ inline int part_of_group(const AttentionArgs& a) {
  return static_cast<int>(blockIdx.y) % parts_of_group(a);
}

struct Query {
  int row, head;
};
__device__ inline Query query_of(const AttentionArgs& a, int tile_query) {
  const int group = a.n_heads / a.n_kv_heads, part = part_of_group(a);
  const int kv_head = static_cast<int>(blockIdx.y) / parts_of_group(a);
  const int first_row = static_cast<int>(blockIdx.z) * a.rows_per_tile;
  const int index = part * kQueries + tile_query;  // among rows_per_tile * group
  const int row = first_row + index / group;
  if (index >= a.rows_per_tile * group || row >= a.n_rows) return {-1, 0};
  return {row, kv_head * group + index % group};
}

// A vector of a head for each warp, in the memory of the planes while these are not in use.
__device__ inline float* scratch_of_warp(Shared& s) {
  static_assert(2 * kQueries * kPlaneStride >= kWarps * kMaxHeadDim * static_cast<int>(sizeof(float)));
  return reinterpret_cast<float*>(s.u_high) + threadIdx.x / kWarp * kMaxHeadDim;
}

// Steps 1 and 2 for one query in shared memory, by one warp.
__device__ inline void quantize_query(const AttentionArgs& a, Shared& s, float* x, int query, int row) {
  const int lane = threadIdx.x % kWarp;
  hadamard(x, a.head_dim, hadamard_size(a.head_dim));
  const Quantizer by = quantizer_of(x, a.head_dim, nc1::kQueryMax);
  if (by.is_nonfinite && lane == 0) raise_flag(a.flags, row);
  for (int i = lane; i < padded_head(a.head_dim); i += kWarp) {
    s.q[query][i] = __int2half_rn(i < a.head_dim ? quantize(x[i], by) : 0);
  }
  if (lane == 0) {
    s.q_scale[query] = by.scale;
    s.n_keys[query] = a.rows[row].pos + 1;
  }
}
// A row of the tile that is no query.
__device__ inline void clear_query(const AttentionArgs& a, Shared& s, int query) {
  const int lane = threadIdx.x % kWarp;
  for (int i = lane; i < padded_head(a.head_dim) / 2; i += kWarp) reinterpret_cast<u32*>(s.q[query])[i] = 0;
  if (lane == 0) {
    s.q_scale[query] = 0.0f;
    s.n_keys[query] = 0;
  }
}

// The first key that a query sees that would see n_keys without a window.
__device__ inline int first_key_of(const AttentionArgs& a, int n_keys) {
  return max(n_keys - a.window, 0);
}
// What a row sees, in splits.
struct SplitRange {
  int first, count;
};
__device__ inline SplitRange splits_of_row(const AttentionArgs& a, int row) {
  const int pos = a.rows[row].pos, first = first_key_of(a, pos + 1) / kSplit;
  return {first, pos / kSplit + 1 - first};
}
// Keys of a split or of a whole cache; end is 0 if there are none.
struct KeyRange {
  int begin, end;
  __device__ bool has(int key) const { return key >= begin && key < end; }
};
__device__ inline KeyRange keys_of_split(const AttentionArgs& a, int n_keys, int split_key) {
  const int begin = max(first_key_of(a, n_keys) - split_key, 0), end = min(n_keys - split_key, kSplit);
  if (begin >= end) return {0, 0};
  return {begin, end};
}

// The queries of the tile, a warp four of them.
__device__ inline void load_queries(const AttentionArgs& a, Shared& s) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  float* x = scratch_of_warp(s);
  for (int query = warp; query < kQueries; query += kWarps) {
    const Query which = query_of(a, query);
    if (which.row < 0) {
      clear_query(a, s, query);
      continue;
    }
    const float* source = a.q + (static_cast<std::size_t>(which.row) * a.n_heads + which.head) * a.head_dim;
    for (int i = lane; i < a.head_dim; i += kWarp) x[i] = source[i];
    quantize_query(a, s, x, query, which.row);
    __syncwarp();
  }
}

// The sums of one chunk of kSteps * 16 dimensions. It may be summed in any order, so each thread takes a quarter of it
// that lies together. All keys are asked for before the first is used: waiting for memory is what a short sequence
// costs.
template <int kSteps>
__device__ inline void chunk_sums(const Shared& s, const __half* keys, int stride, int chunk,
                                  float (&sum)[kKeyTiles][4]) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int mine = chunk + t * kSteps * 4;  // of the chunk's dimensions, this thread's first
  uint2 k[kSteps][kKeyTiles];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      k[step][tile] = *reinterpret_cast<const uint2*>(keys + (8 * tile + g) * stride + mine + 4 * step);
    }
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint2 low = *reinterpret_cast<const uint2*>(&s.q[g][mine + 4 * step]);
    const uint2 high = *reinterpret_cast<const uint2*>(&s.q[g + 8][mine + 4 * step]);
    const u32 q[4] = {low.x, high.x, low.y, high.y};
#pragma unroll
    for (int tile = 0; tile < kKeyTiles; ++tile) mma_f16(sum[tile], q, k[step][tile].x, k[step][tile].y);
  }
}

// Step 3: f32 sums of the exact chunks of 64, left to right.
__device__ inline void scores_of_warp(const AttentionArgs& a, const Shared& s, const __half* keys, int stride,
                                      float (&score)[kKeyTiles][4]) {
  const int width = padded_head(a.head_dim);
  for (int chunk = 0; chunk < width; chunk += nc1::kScoreChunk) {
    float sum[kKeyTiles][4] = {};
    switch (min(nc1::kScoreChunk, width - chunk) / 16) {
      case 4:
        chunk_sums<4>(s, keys, stride, chunk, sum);
        break;
      case 3:
        chunk_sums<3>(s, keys, stride, chunk, sum);
        break;
      case 2:
        chunk_sums<2>(s, keys, stride, chunk, sum);
        break;
      default:
        chunk_sums<1>(s, keys, stride, chunk, sum);
    }
#pragma unroll
    for (int tile = 0; tile < kKeyTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) score[tile][i] = chunk == 0 ? sum[tile][i] : score[tile][i] + sum[tile][i];
    }
  }
}

// What a thread holds of the two rows g and g + 8 of a tile.
struct RowPair {
  int m[2], r[2];
  float e[2];
  KeyRange keys[2];  // that the row sees
};

// Steps 3 and 4 for one split: scores become the planes of u in shared memory;
// m, R and e of the thread's two rows. Ends without a barrier after the planes
// are written.
__device__ inline RowPair weigh_split(const AttentionArgs& a, Shared& s, const SplitView& split, int first_key) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int warp_key = warp * kKeysPerWarp;
  float2 key_scale[kKeyTiles], value_scale[kKeyTiles];  // of this thread's keys: 2t and 2t + 1 of each eight
#pragma unroll
  for (int tile = 0; tile < kKeyTiles; ++tile) {
    const int key = warp_key + 8 * tile + 2 * t;
    key_scale[tile] = *reinterpret_cast<const float2*>(split.key_scales + key);
    value_scale[tile] = *reinterpret_cast<const float2*>(split.value_scales + key);
  }
  float p[kKeyTiles][4];
  int exponent[kKeyTiles][4];
  scores_of_warp(a, s, split.keys + warp_key * split.key_stride, split.key_stride, p);

  RowPair rows = {};
  bool is_nan[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = g + 8 * half;
    const KeyRange keys = keys_of_split(a, s.n_keys[query], first_key);
    const float q_scale = s.q_scale[query];
    int largest = kUnseen;
#pragma unroll
    for (int tile = 0; tile < kKeyTiles; ++tile) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        const int key = warp_key + 8 * tile + 2 * t + i % 2;
        exponent[tile][i] = kUnseen;
        if (!keys.has(key)) continue;
        float score = p[tile][i] * (q_scale * (i % 2 == 0 ? key_scale[tile].x : key_scale[tile].y));
        if (format::is_nan(score)) {  // its scales overflowed
          is_nan[half] = true;
          score = 0.0f;
        }
        score = format::clamp_abs(score, a.score_limit);
        const int n = format::rne(score, a.score_scale);
        exponent[tile][i] = n;
        p[tile][i] = format::exp2_poly(format::fma_rn(score, a.score_scale, -static_cast<float>(n)));
        largest = max(largest, n);
      }
    }
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    if (t == 0) s.warp_m[warp][query] = largest;
    rows.keys[half] = keys;
    if (is_nan[half]) raise_flag(a.flags, query_of(a, query).row);
  }
  __syncthreads();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = g + 8 * half;
    int m = kUnseen;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) m = max(m, s.warp_m[w][query]);
    rows.m[half] = m;
    int r_sum = 0;
    u32 largest = 0;
#pragma unroll
    for (int tile = 0; tile < kKeyTiles; ++tile) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        const int key = warp_key + 8 * tile + 2 * t + i % 2;
        const int below = exponent[tile][i] - m;
        float weight = 0.0f;
        if (rows.keys[half].has(key) && below >= nc1::kExponentFloor) {
          weight = (p[tile][i] * (i % 2 == 0 ? value_scale[tile].x : value_scale[tile].y)) * format::pow2(below);
          r_sum += format::rne(p[tile][i], format::pow2(nc1::kSumBits + below));
        }
        p[tile][i] = weight;
        largest = max(largest, format::float_bits(weight));
      }
    }
#pragma unroll
    for (int apart = 1; apart < 4; apart *= 2) {
      r_sum += __shfl_xor_sync(kAllLanes, r_sum, apart);
      largest = max(largest, __shfl_xor_sync(kAllLanes, largest, apart));
    }
    if (t == 0) {
      s.warp_r[warp][query] = r_sum;
      s.warp_w[warp][query] = largest;
    }
  }
  __syncthreads();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = g + 8 * half;
    int r = 0;
    u32 w_bits = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      r += s.warp_r[w][query];
      w_bits = max(w_bits, s.warp_w[w][query]);
    }
    const float largest = format::bits_float(w_bits);
    const bool is_seen = largest >= nc1::kTinyWeight;
    const float inverse = is_seen ? format::div_rn(static_cast<float>(nc1::kProbabilityMax), largest) : 0.0f;
    rows.r[half] = r;
    rows.e[half] = is_seen ? format::div_rn(largest, static_cast<float>(nc1::kProbabilityMax)) : 0.0f;
#pragma unroll
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      const int u0 = is_seen ? format::rne(p[tile][2 * half], inverse) : 0;
      const int u1 = is_seen ? format::rne(p[tile][2 * half + 1], inverse) : 0;
      const int key = warp_key + 8 * tile + 2 * t;
      *reinterpret_cast<char2*>(&s.u_high[query][key]) =
          make_char2(static_cast<char>(u0 >> 3), static_cast<char>(u1 >> 3));
      *reinterpret_cast<char2*>(&s.u_low[query][key]) =
          make_char2(static_cast<char>(u0 & 7), static_cast<char>(u1 & 7));
    }
  }
  return rows;
}

// A of the tile's rows for the eight dimensions of this fragment.
__device__ inline void weigh_values(const Shared& s, const SplitView& split, int first_dim, int (&sums)[4]) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  int high[4] = {}, low[4] = {};
#pragma unroll
  for (int step = 0; step < kSplit / 32; ++step) {
    const auto plane = [&](const std::int8_t(&u)[kQueries][kPlaneStride], u32(&out)[4]) {
      out[0] = *reinterpret_cast<const u32*>(&u[g][32 * step + 4 * t]);
      out[1] = *reinterpret_cast<const u32*>(&u[g + 8][32 * step + 4 * t]);
      out[2] = *reinterpret_cast<const u32*>(&u[g][32 * step + 16 + 4 * t]);
      out[3] = *reinterpret_cast<const u32*>(&u[g + 8][32 * step + 16 + 4 * t]);
    };
    u32 u_high[4], u_low[4];
    plane(s.u_high, u_high);
    plane(s.u_low, u_low);
    // Four keys of an element lie together: a word is what a fragment wants.
    const u32* words = split.values + (8 * step + t) * split.value_stride + first_dim + g;
    const u32 v0 = words[0], v1 = words[4 * split.value_stride];
    mma_s8(high, u_high, v0, v1);
    mma_s8(low, u_low, v0, v1);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = 8 * high[i] + low[i];
}

}  // namespace nibble::kernels::cuda
