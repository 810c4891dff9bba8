// One split of a decoded token (section 7, steps 3 and 4): up to eight queries that share a key-value head against 128
// keys, by a thread block of eight warps. Keys are the sixteen rows of a product and queries its eight columns, so that
// a group of four wastes half of a score and nothing of a value: there a query's columns are its two planes of weights.
//
// Three things meet at barriers: scores (a warp takes sixteen keys), weights (a warp takes all keys of a query, so that
// m, R and W are one instruction each), values (a warp takes sixteen dimensions).
#pragma once

#include "kernels/cuda/attention_merge.cuh"

namespace nibble::kernels::cuda {

constexpr int kDecodeThreads = 256;
constexpr int kDecodeWarps = kDecodeThreads / kWarp;
constexpr int kFragmentRows = 16;          // keys of a score tile, dimensions of a value tile
constexpr int kScoreStride = kSplit + 4;   // f32 of a query
constexpr int kLowPlane = kSplit / 4 + 4;  // words from a query's high plane of weights to the low one
static_assert(kSplit == kDecodeWarps * kFragmentRows);

// What of the thread block's shared memory depends on the shape. kHeadDim: known to the compiler, or 0. Rows of a
// fragment shall lie in other banks: known heads trade places of 16 bytes within a row, others have 8 elements beyond
// it.
template <int kHeadDim>
struct DecodeLayout {
  static constexpr int kPad = kHeadDim == 0 ? 8 : 0;
  int key_stride, value_stride;          // elements
  int values, scales, stage;             // bytes within a stage, and of one
  int vector;                            // elements of an output
  int integers, scores, outputs, bytes;  // bytes behind n_stages of them
  __host__ __device__ DecodeLayout(int head_dim, int n_queries, int n_stages) {
    constexpr int kFloat = static_cast<int>(sizeof(float));
    key_stride = padded_head(head_dim) + kPad;
    value_stride = head_dim + kPad;
    values = kSplit * key_stride * static_cast<int>(sizeof(__half));
    scales = values + kSplit / 4 * value_stride * static_cast<int>(sizeof(u32));
    stage = scales + 2 * kSplit * kFloat;
    integers = n_stages * stage;
    vector = (head_dim + 3) / 4 * 4;
    scores = integers + (kDecodeQueries + 2) * integer_stride() * static_cast<int>(sizeof(__half));
    outputs = scores + (n_queries <= 4 ? 4 : 8) * kScoreStride * kFloat;
    bytes = outputs + n_queries * vector * kFloat;
  }
  __host__ __device__ int integer_stride() const { return key_stride + 8; }
  // Where an element of a key lies, and the word of four values; neighbours within 16 bytes stay neighbours.
  __device__ int key_at(int key, int dim) const {
    return kHeadDim == 0 ? key * key_stride + dim : key * kHeadDim + (dim ^ (key & 1) << 3);
  }
  __device__ int value_at(int quad, int dim) const {
    return kHeadDim == 0 ? quad * value_stride + dim : quad * kHeadDim + (dim ^ (quad & 3) << 3);
  }
};

// What a thread block keeps in shared memory, beside the splits.
struct DecodeShared {
  __half* integers;  // [kDecodeQueries + 2, integer_stride]: of the queries, of the new key and the new value
  float* scores;     // [4 or 8, kScoreStride]; a query's row becomes its two planes of weights
  float* outputs;    // [queries, vector], where the thread block has all splits
  template <int kHeadDim>
  __device__ DecodeShared(unsigned char* memory, const DecodeLayout<kHeadDim>& layout)
      : integers(reinterpret_cast<__half*>(memory + layout.integers)),
        scores(reinterpret_cast<float*>(memory + layout.scores)),
        outputs(reinterpret_cast<float*>(memory + layout.outputs)) {}
};

template <int kHeadDim>
__device__ inline SplitView stage_view(unsigned char* memory, const DecodeLayout<kHeadDim>& layout, int stage) {
  unsigned char* base = memory + stage * layout.stage;
  const float* scales = reinterpret_cast<const float*>(base + layout.scales);
  return {reinterpret_cast<const __half*>(base),
          layout.key_stride,
          reinterpret_cast<const u32*>(base + layout.values),
          layout.value_stride,
          scales,
          scales + kSplit};
}

// Starts the copy of a split.
template <int kHeadDim>
__device__ inline void fetch_split(const AttentionArgs& a, const SplitView& from, unsigned char* stage,
                                   const DecodeLayout<kHeadDim>& layout) {
  auto* keys = reinterpret_cast<__half*>(stage);
  auto* values = reinterpret_cast<u32*>(stage + layout.values);
  auto* scales = reinterpret_cast<float*>(stage + layout.scales);
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (kHeadDim != 0) {
    // A thread's copies are whole rows apart, which trade the same places.
    constexpr int kKeyChunks = kHeadDim / 8, kKeyRows = kDecodeThreads / kKeyChunks;  // of 16 bytes, of a round
    constexpr int kValueChunks = kHeadDim / 4, kValueRows = kDecodeThreads / kValueChunks;
    static_assert(kKeyRows % 2 == 0 && kValueRows % 4 == 0);
    keys += layout.key_at(thread / kKeyChunks, thread % kKeyChunks * 8);
    values += layout.value_at(thread / kValueChunks, thread % kValueChunks * 4);
    const __half* from_keys = from.keys + thread * 8;
    const u32* from_values = from.values + thread * 4;
#pragma unroll
    for (int i = 0; i < kSplit; i += kKeyRows) copy_16(keys + i * kHeadDim, from_keys + i * kHeadDim);
#pragma unroll
    for (int i = 0; i < kSplit / 4; i += kValueRows) copy_16(values + i * kHeadDim, from_values + i * kHeadDim);
  } else {
    const int key_chunks = from.key_stride / 8, value_chunks = a.head_dim / 4;
#pragma unroll 1
    for (int i = thread; i < kSplit * key_chunks; i += kDecodeThreads) {
      copy_16(keys + layout.key_at(i / key_chunks, i % key_chunks * 8), from.keys + i * 8);
    }
#pragma unroll 1
    for (int i = thread; i < kSplit / 4 * value_chunks; i += kDecodeThreads) {
      copy_16(values + layout.value_at(i / value_chunks, i % value_chunks * 4), from.values + i * 4);
    }
  }
  if (thread < kSplit / 2) {
    const int i = thread % (kSplit / 4) * 4;
    copy_16(scales + 4 * thread, (thread < kSplit / 4 ? from.key_scales : from.value_scales) + i);
  }
}

// A head on its way into attention (section 8; section 7, steps 1 and 2).
struct HeadSource {
  const float* x;
  const float* cos_sin;  // null: not rotated
  int rotary_dim;
  bool interleaved;
  int max;  // of the integers
};

// By one warp, in registers: integers to shared memory, padded with zeros.
template <int kHeadDim>
__device__ inline Quantizer quantize_head(const HeadSource& from, __half* to, int) {
  constexpr int kPerLane = kHeadDim / kWarp, kPairs = kHeadDim / 2;  // rotary_dim is kHeadDim
  const int lane = threadIdx.x % kWarp, first = lane * kPerLane;
  float x[kPerLane];
  const auto load = [&](const float* memory, auto& values) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(values) / sizeof(float)); i += 2) {
      const float2 two = *reinterpret_cast<const float2*>(memory + i);
      values[i] = two.x;
      values[i + 1] = two.y;
    }
  };
  load(from.x + first, x);
  if (from.cos_sin != nullptr && from.interleaved) {
    float turn[kPerLane];
    load(from.cos_sin + first, turn);
#pragma unroll
    for (int i = 0; i < kPerLane; i += 2) {
      const float a = x[i], b = x[i + 1], c = turn[i], s = turn[i + 1];
      x[i] = format::fma_rn(a, c, -(b * s));
      x[i + 1] = format::fma_rn(a, s, b * c);
    }
  } else if (from.cos_sin != nullptr) {
    float turn[2 * kPerLane];
    load(from.cos_sin + 2 * (first % kPairs), turn);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const float c = turn[2 * i], s = turn[2 * i + 1], other = __shfl_xor_sync(kAllLanes, x[i], kWarp / 2);
      x[i] = lane < kWarp / 2 ? format::fma_rn(x[i], c, -(other * s)) : format::fma_rn(other, s, x[i] * c);
    }
  }
  hadamard_of_lanes<kWarp>(x);
  u32 bits = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) bits = max(bits, format::abs_bits(x[i]));
  const Quantizer by = quantizer(__reduce_max_sync(kAllLanes, bits), static_cast<float>(from.max));
#pragma unroll
  for (int i = 0; i < kPerLane; i += 2) {
    *reinterpret_cast<__half2*>(to + first + i) =
        __halves2half2(__int2half_rn(quantize(x[i], by)), __int2half_rn(quantize(x[i + 1], by)));
  }
  return by;
}
// Any head, through the memory of `x`, one vector for each warp.
template <>
__device__ inline Quantizer quantize_head<0>(const HeadSource& from, __half* to, int head_dim) {
  alignas(16) __shared__ float vectors[kDecodeWarps][kMaxHeadDim];
  const int lane = threadIdx.x % kWarp;
  float* x = vectors[threadIdx.x / kWarp];
  for (int i = lane; i < head_dim; i += kWarp) x[i] = from.x[i];
  __syncwarp();
  if (from.cos_sin != nullptr) rotate(x, from.cos_sin, from.rotary_dim, from.interleaved);
  __syncwarp();
  hadamard(x, head_dim, hadamard_size(head_dim));
  const Quantizer by = quantizer_of(x, head_dim, from.max);
  for (int i = lane; i < padded_head(head_dim); i += kWarp) {
    to[i] = __int2half_rn(i < head_dim ? quantize(x[i], by) : 0);
  }
  return by;
}

// The queries as columns, in registers where the head is known to the compiler: 64 dimensions may be summed in any
// order, so each thread takes a quarter of them that lies together.
template <int kHeadDim>
struct QueryColumns {
  static constexpr int kSteps = kHeadDim / 16;
  u32 b[kSteps][2];
  __device__ QueryColumns(const __half* q, int stride) {
    const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int dim = step / 4 * nc1::kScoreChunk + t * 16 + step % 4 * 4;
      const uint2 words = *reinterpret_cast<const uint2*>(q + g * stride + dim);
      b[step][0] = words.x;
      b[step][1] = words.y;
    }
  }
  // Step 3 up to the f32 sum: exact chunks of 64, left to right.
  __device__ void scores(const DecodeLayout<kHeadDim>&, const __half* keys, int, float (&score)[4]) const {
    constexpr int kChunks = kHeadDim / nc1::kScoreChunk;
    const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
    const auto* low = reinterpret_cast<const uint4*>(keys + g * kHeadDim);
    const auto* high = reinterpret_cast<const uint4*>(keys + (g + 8) * kHeadDim);
    float sum[kChunks][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const int at = (chunk * 8 + 2 * t + half) ^ (g & 1);
        const uint4 x = low[at], y = high[at];
        const int step = chunk * 4 + 2 * half;
        mma_f16(sum[chunk], {x.x, y.x, x.y, y.y}, b[step][0], b[step][1]);
        mma_f16(sum[chunk], {x.z, y.z, x.w, y.w}, b[step + 1][0], b[step + 1][1]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      score[i] = sum[0][i];
#pragma unroll
      for (int chunk = 1; chunk < kChunks; ++chunk) score[i] = score[i] + sum[chunk][i];
    }
  }
};
// Any head: the queries stay in shared memory.
template <>
struct QueryColumns<0> {
  const __half* q;
  int q_stride;
  __device__ QueryColumns(const __half* queries, int stride) : q(queries), q_stride(stride) {}
  __device__ void scores(const DecodeLayout<0>& layout, const __half* keys, int width, float (&score)[4]) const {
    const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
    for (int chunk = 0; chunk < width; chunk += nc1::kScoreChunk) {
      const int n_steps = min(nc1::kScoreChunk, width - chunk) / 16, mine = chunk + t * n_steps * 4;
      float sum[4] = {};
      for (int step = 0; step < n_steps; ++step) {
        const auto words = [&](const __half* row) { return *reinterpret_cast<const uint2*>(row + mine + 4 * step); };
        const uint2 x = words(keys + g * layout.key_stride), y = words(keys + (g + 8) * layout.key_stride);
        const uint2 b = words(q + g * q_stride);
        mma_f16(sum, {x.x, y.x, x.y, y.y}, b.x, b.y);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) score[i] = chunk == 0 ? sum[i] : score[i] + sum[i];
    }
  }
};

// Scores of the warp's sixteen keys go to the rows of their queries.
__device__ inline void put_scores(const float (&score)[4], float* scores, int n_queries) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  float* at = scores + 2 * t * kScoreStride + warp * kFragmentRows + g;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (2 * t + i % 2 < n_queries) at[i % 2 * kScoreStride + i / 2 * 8] = score[i];
  }
}

// m, R and e of a query in a split.
struct SplitTail {
  int m, r;
  float e;
};

// Steps 3 and 4 for one query by one warp, a lane four neighbouring keys. Its row of scores becomes its two planes of
// weights: the word of keys 16i + 4t .. 16i + 4t + 3 is number 8t + i, so that a fragment finds its words together.
__device__ inline SplitTail weigh_query(const AttentionArgs& a, float* row, const SplitView& split, float q_scale,
                                        const KeyRange& keys, bool& is_nan) {
  const int lane = threadIdx.x % kWarp;
  const float4 scores = reinterpret_cast<const float4*>(row)[lane];
  const float4 key_scales = reinterpret_cast<const float4*>(split.key_scales)[lane];
  const float4 value_scales = reinterpret_cast<const float4*>(split.value_scales)[lane];
  const float s[4] = {scores.x, scores.y, scores.z, scores.w};
  const float key_scale[4] = {key_scales.x, key_scales.y, key_scales.z, key_scales.w};
  const float value_scale[4] = {value_scales.x, value_scales.y, value_scales.z, value_scales.w};

  float p[4];
  int n[4], m = kUnseen;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool is_seen = keys.has(4 * lane + i);
    float score = s[i] * (q_scale * key_scale[i]);
    if (format::is_nan(score)) {  // its scales overflowed
      is_nan = is_nan || is_seen;
      score = 0.0f;
    }
    score = fminf(fmaxf(score, -a.score_limit), a.score_limit);
    const float integer = format::fma_rn(score, a.score_scale, kIntegers);
    p[i] = format::exp2_poly(format::fma_rn(score, a.score_scale, -(integer - kIntegers)));
    n[i] = is_seen ? static_cast<int>(format::float_bits(integer) - kIntegerBits) : kUnseen;
    m = max(m, n[i]);
  }
  m = __reduce_max_sync(kAllLanes, m);

  int r = 0;
  u32 w_bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int below = n[i] - m;
    const bool counts = below >= nc1::kExponentFloor && n[i] != kUnseen;
    const float part = counts ? p[i] * format::pow2(below) : 0.0f;  // exact
    r += format::rne(part, format::pow2(nc1::kSumBits));
    p[i] = counts ? part * value_scale[i] : 0.0f;  // what is not seen may have the scale NaN
    w_bits = max(w_bits, format::float_bits(p[i]));
  }
  r = __reduce_add_sync(kAllLanes, r);
  const float w = format::bits_float(__reduce_max_sync(kAllLanes, w_bits));
  const bool is_seen = w >= nc1::kTinyWeight;
  const float inverse = is_seen ? format::div_rn(static_cast<float>(nc1::kProbabilityMax), w) : 0.0f;
  const float e = is_seen ? format::div_rn(w, static_cast<float>(nc1::kProbabilityMax)) : 0.0f;

  // u < 2^10 is the low half of its float's bits.
  const auto pair = [&](int i) {
    return __byte_perm(format::float_bits(format::fma_rn(p[i], inverse, kIntegers)),
                       format::float_bits(format::fma_rn(p[i + 1], inverse, kIntegers)), 0x5410);
  };
  const u32 first = pair(0), second = pair(2);
  __syncwarp();  // all scores of the row are read
  u32* words = reinterpret_cast<u32*>(row) + lane % 4 * 8 + lane / 4;
  words[0] = __byte_perm(first >> 3 & 0x007F007Fu, second >> 3 & 0x007F007Fu, 0x6420);
  words[kLowPlane] = __byte_perm(first & 0x00070007u, second & 0x00070007u, 0x6420);
  return {m, r, e};
}

// A of sixteen dimensions from first_dim on, which is exact as f32: put(query, dim, A, A of dim + 1), once a thread for
// up to four queries, and twice for eight.
template <int kHeadDim, bool kWide, typename Put>
__device__ inline void weigh_values(const DecodeLayout<kHeadDim>& layout, const float* scores, const u32* values,
                                    int first_dim, const Put& put) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  int high[4], low[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) high[i] = low[i] = static_cast<int>(kIntegerBits);
  // Column g: query g, or query g / 2 with its high or its low plane.
  const auto* planes = reinterpret_cast<const u32*>(scores);
  const u32* column = kWide ? planes + g * kScoreStride : planes + g / 2 * kScoreStride + g % 2 * kLowPlane;
  const auto load = [&](const u32* words, u32(&u)[8]) {
    const uint4 x = *reinterpret_cast<const uint4*>(words + 8 * t),
                y = *reinterpret_cast<const uint4*>(words + 8 * t + 4);
    u[0] = x.x, u[1] = x.y, u[2] = x.z, u[3] = x.w, u[4] = y.x, u[5] = y.y, u[6] = y.z, u[7] = y.w;
  };
  u32 u_high[8], u_low[8];
  load(column, u_high);
  if (kWide) load(column + kLowPlane, u_low);
  values += layout.value_at(t, first_dim + 2 * g);
#pragma unroll
  for (int step = 0; step < kSplit / 32; ++step) {
    const uint2 x = *reinterpret_cast<const uint2*>(values + 8 * step * layout.value_stride);
    const uint2 y = *reinterpret_cast<const uint2*>(values + (8 * step + 4) * layout.value_stride);
    mma_s8(high, {x.x, x.y, y.x, y.y}, u_high[2 * step], u_high[2 * step + 1]);
    if (kWide) mma_s8(low, {x.x, x.y, y.x, y.y}, u_low[2 * step], u_low[2 * step + 1]);
  }
  const auto sum = [](int of_high, int of_low) {  // |8 high + low| < 2^24
    return format::fma_rn(__int_as_float(of_high) - kIntegers, 8.0f, __int_as_float(of_low) - kIntegers);
  };
  const int dim = first_dim + 2 * g;
  if (kWide) {
    put(2 * t, dim, sum(high[0], low[0]), sum(high[2], low[2]));
    put(2 * t + 1, dim, sum(high[1], low[1]), sum(high[3], low[3]));
  } else {
    put(t, dim, sum(high[0], high[1]), sum(high[2], high[3]));
  }
}

}  // namespace nibble::kernels::cuda
