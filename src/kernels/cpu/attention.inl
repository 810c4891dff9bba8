// Attention over the contract's integers (section 7), a split of 128 positions at a time.
#pragma once

#include "kernels/cpu/attention_fetch.inl"
#include "kernels/cpu/quantize.inl"

namespace nibble::kernels::cpu {
namespace {

constexpr int kSplit = format::nc1::kSplit;
// Vectors of positions whose scores for kHeads heads are summed at once, and of dimensions whose values are, in two
// planes.
template <int kHeads>
constexpr int kScoreVectors = kHeads <= kHeadsAtOnce / 2 ? 8 : 4;
template <int kHeads>
constexpr int kValueVectors = kScoreVectors<kHeads> / 2;

// Sixteen floats, whatever the width of a vector is.
using F32x16 = float __attribute__((vector_size(64)));
using I32x16 = std::int32_t __attribute__((vector_size(64)));

// Where bit kStride of i is not set x[i] + x[i ^ kStride], otherwise x[i ^ kStride] - x[i]. By reference: a value would
// pass in registers that not every instruction set has.
template <int kStride>
inline void butterfly(F32x16& x) {
  constexpr auto at = [](int i) { return i ^ kStride; };
  constexpr auto sign = [](int i) { return (i & kStride) != 0 ? INT32_MIN : 0; };
  const F32x16 other = __builtin_shufflevector(x, x, at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8),
                                               at(9), at(10), at(11), at(12), at(13), at(14), at(15));
  const I32x16 signs = {sign(0), sign(1), sign(2),  sign(3),  sign(4),  sign(5),  sign(6),  sign(7),
                        sign(8), sign(9), sign(10), sign(11), sign(12), sign(13), sign(14), sign(15)};
  x = other + __builtin_bit_cast(F32x16, __builtin_bit_cast(I32x16, x) ^ signs);
}

// Unnormalized butterflies over consecutive blocks of `size`.
inline void hadamard(float* x, int n, int size) {
  int stride = 1;
  if (n % 16 == 0) {
    for (int i = 0; i < n; i += 16) {
      F32x16 v;
      __builtin_memcpy(&v, x + i, sizeof v);
      if (size > 1) butterfly<1>(v);
      if (size > 2) butterfly<2>(v);
      if (size > 4) butterfly<4>(v);
      if (size > 8) butterfly<8>(v);
      __builtin_memcpy(x + i, &v, sizeof v);
    }
    stride = 16;
  }
  for (; stride < size; stride *= 2) {
    for (int base = 0; base < n; base += 2 * stride) {
      for (int i = base; i < base + stride; ++i) {
        const float a = x[i], b = x[i + stride];
        x[i] = a + b;
        x[i + stride] = a - b;
      }
    }
  }
}

inline Quantization rotate(const HeadShape& shape, const float* x, int q_max, float* rotated) {
  for (int i = 0; i < shape.head_dim; ++i) rotated[i] = x[i];
  hadamard(rotated, shape.head_dim, shape.hadamard);
  return quantization_of(rotated, shape.head_dim, q_max);
}

// Integers of a head, padded with zeros to whole pairs.
inline bool quantize_head(const HeadShape& shape, const float* x, int q_max, float* scratch, std::int16_t* q,
                          float& scale) {
  const Quantization by = rotate(shape, x, q_max, scratch);
  quantize(scratch, shape.head_dim, by, q);
  for (int i = shape.head_dim; i < shape.padded_dim; ++i) q[i] = 0;
  scale = by.scale;
  return by.is_nonfinite;
}

bool store_kv(const HeadShape& shape, const float* k, const float* v, float* scratch, const KvSplit& split, int at) {
  const int dims = shape.padded_dim;
  auto* const q = reinterpret_cast<std::int16_t*>(scratch + padded_head(shape.head_dim));
  bool is_nonfinite = quantize_head(shape, k, format::nc1::kKeyMax, scratch, q, split.key_scales[at]);
  std::int16_t* const key = split.keys + at / kKeyBlock * kKeyBlock * dims + at % kKeyBlock * 2;
  for (int i = 0; i < dims; i += 2) __builtin_memcpy(key + i * kKeyBlock, q + i, 2 * sizeof *q);
  is_nonfinite |= quantize_head(shape, v, format::nc1::kValueMax, scratch, q, split.value_scales[at]);
  for (int first = 0; first < dims; first += kValueBlock) {
    const int n = dims - first < kValueBlock ? dims - first : kValueBlock;
    std::int8_t* const value = split.values + first * kSplit + at / 4 * 4 * n + at % 4;
    for (int i = 0; i < n; ++i) value[4 * i] = static_cast<std::int8_t>(q[first + i]);
  }
  return is_nonfinite;
}

// Softmax weights of a split as integers, u = 8 * high + low; zeros for positions that are not seen.
struct SplitWeights {
  alignas(64) std::int8_t high[kSplit];  // 0..127
  alignas(64) std::int8_t low[kSplit];   // 0..7
};

// The part of a split that a token sees.
struct Seen {
  int begin, end;
};

template <int n>
struct Count {
  static constexpr int value = n;
};
// body(Count<n>, first) for all heads, as many at once as there are registers for their sums.
template <class Body>
[[gnu::always_inline]] inline void for_heads(int n_heads, const Body& body) {
  for (int head = 0; head < n_heads;) {
    const int left = n_heads - head;
    const int n = left <= kHeadsAtOnce ? left : left == kHeadsAtOnce + 1 ? (left + 1) / 2 : kHeadsAtOnce;
    if constexpr (kHeadsAtOnce == 4) {
      if (n == 4) body(Count<4>{}, head);
      if (n == 3) body(Count<3>{}, head);
    }
    if (n == 2) body(Count<2>{}, head);
    if (n == 1) body(Count<1>{}, head);
    head += n;
  }
}

// Scores of kHeads queries [kHeads, dims] and some positions: f32 sums of the exact chunks, left to right.
template <int kHeads>
inline void score_keys(const std::int16_t* keys, const std::int16_t* q, int dims, Fetch& fetch,
                       float* scores /* [kHeads, kSplit] */) {
  constexpr int kVectors = kScoreVectors<kHeads>;
  for (int first = 0; first < dims; first += format::nc1::kScoreChunk) {
    const int end = dims - first < format::nc1::kScoreChunk ? dims : first + format::nc1::kScoreChunk;
    PairSum sums[kHeads][kVectors];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[h][v] = pair_sum_zero();
    }
    for (int i = first; i < end; i += 2) {
      fetch_step(fetch);
      const std::int16_t* const pairs = keys + i * kKeyBlock;
      I32V query[kHeads];
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) query[h] = pair_set1(q + h * dims + i);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        constexpr int kBlockVectors = kKeyBlock / kLanes;
        const I32V key = i32_load_pairs(pairs + v / kBlockVectors * kKeyBlock * dims + v % kBlockVectors * 2 * kLanes);
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) sums[h][v] = add_pairs(sums[h][v], key, query[h]);
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        float* const to = scores + h * kSplit + v * kLanes;
        const F32V s = f32_from(total(sums[h][v]));
        f32_store(to, first == 0 ? s : f32_load(to) + s);
      }
    }
  }
}

// Softmax weights of a split as integers, and all of its sums but those of values. Returns true for a score that is not
// a number: its scales overflowed. Whole vectors of positions pass; what a token does not see counts for nothing.
inline bool split_weights(const AttentionJob& job, float query_scale, const KvSplit& split, const Seen& seen,
                          const float* scores, SplitWeights& weights, SplitSums& sums) {
  constexpr int kFloor = format::nc1::kExponentFloor, kUnseen = -(1 << 24);  // far below any exponent
  alignas(64) std::int32_t exponent[kSplit];
  alignas(64) float p[kSplit], w[kSplit];
  const float* const key_scales = split.key_scales;
  const float* const value_scales = split.value_scales;
  const float c = job.score_scale, limit = job.score_limit;
  const int first = seen.begin / kTileRows * kTileRows, end = (seen.end + kTileRows - 1) / kTileRows * kTileRows;
  std::int32_t is_nan = 0, m = kUnseen;
  for (int j = first; j < end; ++j) {
    const bool is_seen = (j >= seen.begin) & (j < seen.end);
    const float t = scores[j] * (query_scale * key_scales[j]);
    const bool t_is_nan = format::is_nan(t);
    is_nan |= (is_seen & t_is_nan) ? 1 : 0;
    const float clamped = format::clamp_abs(t_is_nan ? 0.0F : t, limit);
    const std::int32_t n = format::rne(clamped, c);
    p[j] = format::exp2_poly(format::fma_rn(clamped, c, -static_cast<float>(n)));
    exponent[j] = is_seen ? n : kUnseen;
    m = exponent[j] > m ? exponent[j] : m;
  }
  std::int32_t largest = 0, r_sum = 0;
  for (int j = first; j < end; ++j) {
    const std::int32_t below = exponent[j] - m;
    const bool counts = below >= kFloor;
    const std::int32_t e = counts ? below : kFloor;
    const float weight = (p[j] * value_scales[j]) * format::pow2(e);
    const std::int32_t r = format::rne(p[j], format::pow2(format::nc1::kSumBits + e));
    w[j] = counts ? weight : 0.0F;
    r_sum += counts ? r : 0;
    const std::int32_t bits = static_cast<std::int32_t>(format::float_bits(w[j]));
    largest = bits > largest ? bits : largest;
  }
  const float w_max = format::bits_float(static_cast<std::uint32_t>(largest));
  const float q_max = static_cast<float>(format::nc1::kProbabilityMax);
  const bool is_large_enough = w_max >= format::nc1::kTinyWeight;
  const float inverse = is_large_enough ? q_max / w_max : 0.0F;
  for (int j = first; j < end; ++j) {
    const std::int32_t u = is_large_enough ? format::rne(w[j], inverse) : 0;
    weights.high[j] = static_cast<std::int8_t>(u >> 3);
    weights.low[j] = static_cast<std::int8_t>(u & 7);
  }
  sums.m = m;
  sums.r_sum = r_sum;
  sums.e = is_large_enough ? w_max / q_max : 0.0F;
  return is_nan != 0;
}

// Sums over fours of positions [begin, end) of u * v, for kHeads heads and kVectors vectors of the dimensions of a
// block `width` wide. Each byte dot product takes four positions and one plane of u.
template <int kHeads, int kVectors>
inline void sum_values_of(const std::int8_t* values, int width, const SplitWeights* weights, int begin, int end,
                          Fetch& fetch, std::int32_t* sums, int stride) {
  I32V high[kHeads][kVectors], low[kHeads][kVectors];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) high[h][v] = low[h][v] = i32_zero();
  }
  constexpr int kBlockVectors = kValueBlock / kLanes;
  for (int four = begin; four < end; ++four) {
    fetch_step(fetch);
    const std::int8_t* const row = values + 4 * four * width;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const I32V value =
          i32_load_pairs(row + v / kBlockVectors * kValueBlock * kSplit + v % kBlockVectors * 4 * kLanes);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        high[h][v] = weigh_quads(high[h][v], value, weights[h].high + 4 * four);
        low[h][v] = weigh_quads(low[h][v], value, weights[h].low + 4 * four);
      }
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) i32_store(sums + h * stride + v * kLanes, i32_times_8(high[h][v]) + low[h][v]);
  }
}

template <int kHeads>
inline void sum_values(const std::int8_t* values, int dims, const SplitWeights* weights, const Seen& seen, Fetch& fetch,
                       std::int32_t* sums, int stride) {
  const int begin = seen.begin / 4, end = (seen.end + 3) / 4;
  constexpr int kVectors = kValueVectors<kHeads>, kDims = kVectors * kLanes;
  static_assert(kDims % kValueBlock == 0 || kValueBlock % kDims == 0);
  for (int i = 0; i < dims;) {
    const int block = i / kValueBlock * kValueBlock;
    const int width = dims - block < kValueBlock ? dims - block : kValueBlock;
    const std::int8_t* const at = values + block * kSplit + (i - block) * 4;
    fetch.cross();
    if (i + kDims <= dims && (kDims <= width || dims % kValueBlock == 0)) {
      sum_values_of<kHeads, kVectors>(at, width, weights, begin, end, fetch, sums + i, stride);
      i += kDims;
    } else {
      sum_values_of<kHeads, 1>(at, width, weights, begin, end, fetch, sums + i, stride);
      i += kLanes;
    }
  }
}

// Queries of a job's heads, rotated and quantized.
struct Queries {
  std::int16_t* q;  // [n_heads, padded_dim], of the job's scratch
  float scale[kMaxJobHeads];
};

inline bool quantize_queries(const AttentionJob& job, Queries& queries) {
  const int head_dim = job.shape.head_dim;
  queries.q = reinterpret_cast<std::int16_t*>(job.scratch + padded_head(head_dim));
  bool is_nonfinite = false;
  for (int head = 0; head < job.n_heads; ++head) {
    is_nonfinite |= quantize_head(job.shape, job.q + static_cast<std::size_t>(head) * head_dim, format::nc1::kQueryMax,
                                  job.scratch, queries.q + head * job.shape.padded_dim, queries.scale[head]);
  }
  return is_nonfinite;
}

// Of the split that is being read and the one after it, in as many steps as a whole split takes; nothing where the
// token sees no other.
inline Fetch fetch_next(const AttentionJob& job, int split) {
  if ((split + 1) * kSplit >= job.n_keys) return {nullptr, nullptr, 0, 0};
  int n_steps = 0;
  for_heads(job.n_heads,
            [&](auto heads, int) { n_steps += kSplit * job.shape.padded_dim / (kLanes * kScoreVectors<heads.value>); });
  const std::size_t bytes = split_bytes(job.shape);
  const int n_lines = static_cast<int>(bytes / kLineBytes) - job.n_heads * kSoftmaxLines;
  const int lines = (n_lines + n_steps - 1) / n_steps;
  const std::uint8_t* const begin = job.splits.piece(job.shape, split);
  return {.at = begin + (bytes < kFetchAhead ? bytes : kFetchAhead),
          .end = begin + bytes,
          .jump = job.splits.piece(job.shape, split + 1) - (begin + bytes),
          .lines = lines > 1 ? lines : 1};
}

// One split for all heads of a job, so that its keys and values are read once from where they are far away.
inline bool sum_split(const AttentionJob& job, const Queries& queries, int split, float* sums) {
  const int dims = job.shape.padded_dim, first_key = split * kSplit;
  const KvSplit at = job.splits.at(job.shape, split);
  const Seen seen = {job.first_key > first_key ? job.first_key - first_key : 0,
                     job.n_keys - first_key < kSplit ? job.n_keys - first_key : kSplit};
  const int stride = static_cast<int>(split_sums_floats(job.shape.head_dim));
  alignas(64) float scores[kMaxJobHeads * kSplit];
  SplitWeights weights[kMaxJobHeads];
  Fetch fetch = fetch_next(job, split);
  for_heads(job.n_heads, [&](auto heads, int head) {
    constexpr int kKeys = kScoreVectors<heads.value> * kLanes;
    for (int key = seen.begin / kKeys * kKeys; key < seen.end; key += kKeys) {
      fetch.cross();
      score_keys<heads.value>(at.keys + key / kKeyBlock * kKeyBlock * dims + key % kKeyBlock * 2,
                              queries.q + head * dims, dims, fetch, scores + head * kSplit + key);
    }
  });
  bool is_nonfinite = false;
  for (int head = 0; head < job.n_heads; ++head) {
    SplitSums& to = *reinterpret_cast<SplitSums*>(sums + head * stride);
    if (fetch.lines != 0) fetch_lines<kSoftmaxLines>(fetch);
    is_nonfinite |= split_weights(job, queries.scale[head], at, seen, scores + head * kSplit, weights[head], to);
  }
  for_heads(job.n_heads, [&](auto heads, int head) {
    SplitSums& to = *reinterpret_cast<SplitSums*>(sums + head * stride);
    sum_values<heads.value>(at.values, dims, weights + head, seen, fetch, to.values(), stride);
  });
  return is_nonfinite;
}

bool attention_splits(const AttentionJob& job, int first, int last, std::size_t stride, float* sums) {
  Queries queries;
  bool is_nonfinite = quantize_queries(job, queries);
  for (int split = first; split < last; ++split, sums += stride) is_nonfinite |= sum_split(job, queries, split, sums);
  return is_nonfinite;
}

inline void merge(const SplitSums& split, int head_dim, HeadState& run, float* o) {
  const int m = run.m > split.m ? run.m : split.m;
  constexpr int kFloor = format::nc1::kExponentFloor;
  const float a = run.m - m >= kFloor ? format::pow2(run.m - m) : 0.0F;
  const float b = split.m - m >= kFloor ? format::pow2(split.m - m) : 0.0F;
  const float eb = split.e * b;
  const float snap = a < 1.0F ? format::nc1::kTinyOutput : 0.0F;
  const std::int32_t* sums = split.values();
  for (int i = 0; i < head_dim; ++i) {
    const float scaled = o[i] * a;
    o[i] = format::fma_rn(static_cast<float>(sums[i]), eb, format::abs_value(scaled) < snap ? 0.0F : scaled);
  }
  run.l = format::fma_rn(static_cast<float>(split.r_sum), b * format::pow2(-format::nc1::kSumBits), run.l * a);
  run.m = m;
}

void attention_merge(const AttentionJob& job, int first, int last, std::size_t stride, const float* sums,
                     HeadState* states) {
  const int head_dim = job.shape.head_dim;
  for (int head = 0; head < job.n_heads; ++head) {
    float* const o = job.out + static_cast<std::size_t>(head) * head_dim;
    const float* at = sums + head * split_sums_floats(head_dim);
    HeadState& run = states[head];
    for (int split = first; split < last; ++split, at += stride) {
      const SplitSums& one = *reinterpret_cast<const SplitSums*>(at);
      if (split == job.first_key / kSplit) {
        run = {one.m, 0.0F};
        for (int i = 0; i < head_dim; ++i) o[i] = 0.0F;
      }
      merge(one, head_dim, run, o);
    }
    if (last * kSplit < job.n_keys) continue;
    const float norm = format::pow2(-job.shape.hadamard_log2) / run.l;
    for (int i = 0; i < head_dim; ++i) o[i] = o[i] * norm;
    hadamard(o, head_dim, job.shape.hadamard);
  }
}

bool attention(const AttentionJob& job) {
  Queries queries;
  HeadState states[kMaxJobHeads];
  float* const sums = job.scratch + (1 + kMaxJobHeads) * padded_head(job.shape.head_dim);
  bool is_nonfinite = quantize_queries(job, queries);
  for (int split = job.first_key / kSplit; split * kSplit < job.n_keys; ++split) {
    is_nonfinite |= sum_split(job, queries, split, sums);
    attention_merge(job, split, split + 1, 0, sums, states);
  }
  return is_nonfinite;
}

}  // namespace
}  // namespace nibble::kernels::cpu
