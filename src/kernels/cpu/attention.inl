// Quantization to the contract's integers (sections 3 and 7) and attention over them.
#pragma once

namespace nibble::kernels::cpu {
namespace {

// The largest magnitude as bits without sign: order is kept, and non-finite values are the largest.
inline std::uint32_t max_abs_bits(const float* x, int n) {
  std::int32_t largest = 0;
  for (int i = 0; i < n; ++i) {
    const std::int32_t bits = static_cast<std::int32_t>(format::abs_bits(x[i]));
    largest = bits > largest ? bits : largest;
  }
  return static_cast<std::uint32_t>(largest);
}

struct Quantization {
  float inverse;  // integers are rne(x, inverse)
  float scale;    // and stand for integer * scale
  bool is_nonfinite;
};

// Below 2^-40 everything is zero. Where a value is not finite there are no integers: zeros, of a scale that is NaN.
inline Quantization quantization_of(const float* x, int n, int q_max) {
  const std::uint32_t bits = max_abs_bits(x, n);
  const float m = format::bits_float(bits);
  if (bits >= 0x7F800000U) return {0.0F, format::bits_float(0x7FC00000U), true};
  if (m < format::nc1::kTiny) return {0.0F, 0.0F, false};
  return {static_cast<float>(q_max) / m, m / static_cast<float>(q_max), false};
}

template <class Integer>
inline void quantize(const float* x, int n, const Quantization& by, Integer* q) {
  if (by.inverse == 0.0F) {
    for (int i = 0; i < n; ++i) q[i] = 0;
    return;
  }
  for (int i = 0; i < n; ++i) q[i] = static_cast<Integer>(format::rne(x[i], by.inverse));
}

inline void split_planes(const std::int16_t* q, PlaneBlock& planes) {
  for (int i = 0; i < 64; i += 4) {
    for (int j = 0; j < 4; ++j) {
      const std::int16_t value = q[i + kQuadOrder[j]];
      planes.high[i + j] = static_cast<std::int8_t>(value >> 3);
      planes.low[i + j] = static_cast<std::int8_t>(value & 7);
    }
  }
  for (int g = 0; g < kGroupsPerBlock; ++g) {
    planes.high_start[g] = plane_start(planes.high + 16 * g);
    planes.low_start[g] = plane_start(planes.low + 16 * g);
  }
}

bool quantize_a11(const float* x, int n_in, std::size_t stride, std::int16_t* q, PlaneBlock* planes, float* d) {
  bool is_nonfinite = false;
  for (int begin = 0; begin < n_in; begin += 64) {
    const int width = n_in - begin < 64 ? n_in - begin : 64;
    const Quantization by = quantization_of(x + begin, width, format::nc1::kActivationMax);
    quantize(x + begin, width, by, q);
    for (int i = width; i < 64; ++i) q[i] = 0;
    if (planes != nullptr) {
      split_planes(q, *planes);
      planes += stride / 64;
    }
    *d = by.scale;
    is_nonfinite |= by.is_nonfinite;
    q += stride;
    d += stride / 64;
  }
  return is_nonfinite;
}

// Section 11, of at most 256 values. Rounded to f16 first; the first of the largest magnitudes decides the sign of d.
inline bool quantize_super_block(const float* x, int n, std::int16_t* q /* [n] */, float& d) {
  float halves[4 * 64];
  int rounded = 0;
  for (; rounded + kLanes <= n; rounded += kLanes) {
    f32_store(halves + rounded, f32_round_to_f16(f32_load(x + rounded)));
  }
  for (; rounded < n; ++rounded) halves[rounded] = format::f16_to_f32(format::f32_to_f16(x[rounded]));
  const std::uint32_t largest = max_abs_bits(halves, n);
  for (int i = 0; i < n; ++i) q[i] = 0;
  d = largest >= 0x7F800000U ? format::bits_float(0x7FC00000U) : 0.0F;
  if (largest == 0 || largest >= 0x7F800000U) return largest != 0;
  int first = 0;
  while (format::abs_bits(halves[first]) != largest) ++first;
  const float inverse = -127.0F / halves[first];
  for (int i = 0; i < n; ++i) q[i] = static_cast<std::int16_t>(format::rne(halves[i], inverse));
  d = 1.0F / inverse;
  return false;
}

inline void take_plane(const std::int16_t* q, PlaneBlock& planes) {
  for (int i = 0; i < 64; i += 4) {
    for (int j = 0; j < 4; ++j) planes.high[i + j] = static_cast<std::int8_t>(q[i + kQuadOrder[j]]);
  }
  for (int g = 0; g < kGroupsPerBlock; ++g) planes.high_start[g] = plane_start(planes.high + 16 * g);
}

bool quantize_a16q8(const float* x, int n_in, std::size_t stride, std::int16_t* q, PlaneBlock* planes, float* d) {
  bool is_nonfinite = false;
  for (int begin = 0; begin < n_in; begin += 256) {
    const int width = n_in - begin < 256 ? n_in - begin : 256;
    std::int16_t integers[256] = {};
    float step = 0;
    is_nonfinite |= quantize_super_block(x + begin, width, integers, step);
    for (int at = 0; at < width; at += 64) {
      __builtin_memcpy(q, integers + at, 64 * sizeof *q);
      if (planes != nullptr) {
        take_plane(q, *planes);
        planes += stride / 64;
      }
      *d = step;
      q += stride;
      d += stride / 64;
    }
  }
  return is_nonfinite;
}

// Unnormalized butterflies over consecutive blocks of `size`.
inline void hadamard(float* x, int n, int size) {
  for (int stride = 1; stride < size; stride *= 2) {
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

bool store_key(const HeadShape& shape, const float* k, float* scratch, std::int16_t* key, float* scale) {
  const Quantization by = rotate(shape, k, format::nc1::kKeyMax, scratch);
  quantize(scratch, shape.head_dim, by, key);
  for (int i = shape.head_dim; i < shape.key_stride; ++i) key[i] = 0;
  *scale = by.scale;
  return by.is_nonfinite;
}

bool store_value(const HeadShape& shape, const float* v, float* scratch, std::int8_t* value, float* scale) {
  const Quantization by = rotate(shape, v, format::nc1::kValueMax, scratch);
  quantize(scratch, shape.head_dim, by, value);
  *scale = by.scale;
  return by.is_nonfinite;
}

// Softmax weights of a split of up to 128 keys as integers; even in number: a zero follows an odd one.
struct SplitWeights {
  alignas(64) std::int16_t u[format::nc1::kSplit];
};

// Part `index` of n_parts of the bytes that hold the keys and values of a split. They are asked for little by little,
// because a core waits for a burst that is longer than what it can have in flight. always_inline: gcc drops calls of a
// function that only prefetches.
[[gnu::always_inline]] inline void fetch_part(const AttentionJob& job, int split, int index, int n_parts) {
  const std::size_t key = static_cast<std::size_t>(split) * format::nc1::kSplit;
  const auto* keys = reinterpret_cast<const std::uint8_t*>(job.keys + key * job.shape.key_stride);
  const std::int8_t* values = job.values + key * job.shape.head_dim;
  const int n_keys = format::nc1::kSplit * job.shape.key_stride * 2 / kLineBytes;
  const int n_values = format::nc1::kSplit * job.shape.head_dim / kLineBytes;
  for (int i = n_keys * index / n_parts; i < n_keys * (index + 1) / n_parts; ++i) {
    __builtin_prefetch(keys + i * kLineBytes, 0, 2);
  }
  for (int i = n_values * index / n_parts; i < n_values * (index + 1) / n_parts; ++i) {
    __builtin_prefetch(values + i * kLineBytes, 0, 2);
  }
}

// f32 sums of the exact chunks of 64, left to right, for keys [begin, begin + n) and up to kLanes - 1 beyond them,
// which the padding of the cache allows.
inline void split_scores(const AttentionJob& job, int head, const std::int16_t* q, int begin, int n, float* scores) {
  const int stride = job.shape.key_stride;
  const bool has_next = begin + n < job.n_keys;
  constexpr int kSteps = format::nc1::kSplit / kLanes;
  for (int j = 0; j < n; j += kLanes) {
    if (has_next) {
      fetch_part(job, begin / format::nc1::kSplit + 1, head * kSteps + j / kLanes, job.n_heads * kSteps);
    }
    const std::int16_t* key = job.keys + static_cast<std::size_t>(begin + j) * stride;
    F32V score = f32_set1(0.0F);
    for (int chunk = 0; chunk < stride; chunk += format::nc1::kScoreChunk) {
      const bool is_whole = chunk + 32 < stride;
      const I16x32 q_first = i16_load(q + chunk), q_second = is_whole ? i16_load(q + chunk + 32) : I16x32{};
      Partial partial[kLanes];
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) {
        const std::int16_t* row = key + static_cast<std::size_t>(r) * stride + chunk;
        partial[r] = dot(Partial{}, i16_load(row), q_first);
        if (is_whole) partial[r] = dot(partial[r], i16_load(row + 32), q_second);
      }
      const F32V s = f32_from(sum_rows(partial));
      score = chunk == 0 ? s : score + s;
    }
    f32_store(scores + j, score);
  }
}

// Softmax weights of a split as integers, and all of its sums but those of values. Returns true for a score that is not
// a number: its scales overflowed.
inline bool split_weights(const AttentionJob& job, float query_scale, int begin, int n, const float* scores,
                          SplitWeights& weights, SplitSums& sums) {
  alignas(64) std::int32_t exponent[format::nc1::kSplit];
  alignas(64) float p[format::nc1::kSplit], w[format::nc1::kSplit];
  const float* key_scales = job.key_scales + begin;
  const float* value_scales = job.value_scales + begin;
  const float c = job.score_scale, limit = job.score_limit;
  std::int32_t is_nan = 0;
  for (int j = 0; j < n; ++j) {
    const float t = scores[j] * (query_scale * key_scales[j]);
    const bool t_is_nan = format::is_nan(t);
    is_nan |= t_is_nan ? 1 : 0;
    const float clamped = format::clamp_abs(t_is_nan ? 0.0F : t, limit);
    exponent[j] = format::rne(clamped, c);
    p[j] = format::exp2_poly(format::fma_rn(clamped, c, -static_cast<float>(exponent[j])));
  }
  std::int32_t m = exponent[0];
  for (int j = 1; j < n; ++j) m = exponent[j] > m ? exponent[j] : m;

  constexpr int kFloor = format::nc1::kExponentFloor;
  std::int32_t largest = 0, r_sum = 0;
  for (int j = 0; j < n; ++j) {
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
  const bool is_seen = w_max >= format::nc1::kTinyWeight;
  const float inverse = is_seen ? q_max / w_max : 0.0F;
  for (int j = 0; j < n; ++j) weights.u[j] = static_cast<std::int16_t>(is_seen ? format::rne(w[j], inverse) : 0);
  if (n % 2 != 0) weights.u[n] = 0;
  sums.m = m;
  sums.r_sum = r_sum;
  sums.e = is_seen ? w_max / q_max : 0.0F;
  return is_nan != 0;
}

// sums[i] = sum over n keys of u * v_i, for kDims dimensions. Two keys meet in one dot product of pairs.
template <int kDims>
inline void sum_values_of(const std::int8_t* values, int stride, const std::int16_t* u, int n, std::int32_t* sums) {
  constexpr int kVectors = kDims / kLanes, kStep = 32 / kLanes;
  I32V acc[kVectors];
  for (int v = 0; v < kVectors; ++v) acc[v] = i32_zero();
  for (int j = 0; j < n; j += 2) {
    const std::int8_t* first = values + static_cast<std::size_t>(j) * stride;
    const std::int8_t* second = j + 1 < n ? first + stride : first;  // whose u is 0
    const I32V two = pair_set1(u + j);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v += kStep) {
      I32V pairs[kStep];
      zip_int8(first + v * kLanes, second + v * kLanes, pairs);
#pragma GCC unroll 8
      for (int i = 0; i < kStep; ++i) acc[v + i] = pair_dot(acc[v + i], pairs[i], two);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; v += kStep) store_zipped(sums + v * kLanes, acc + v);
}

inline void sum_values(const std::int8_t* values, int head_dim, const std::int16_t* u, int n, std::int32_t* sums) {
  int i = 0;
  for (; i + 64 <= head_dim; i += 64) sum_values_of<64>(values + i, head_dim, u, n, sums + i);
  for (; i + 32 <= head_dim; i += 32) sum_values_of<32>(values + i, head_dim, u, n, sums + i);
  for (; i < head_dim; ++i) {
    sums[i] = 0;
    for (int j = 0; j < n; ++j) sums[i] += u[j] * values[static_cast<std::size_t>(j) * head_dim + i];
  }
}

// Queries of a job's heads, rotated and quantized.
struct Queries {
  std::int16_t* q;  // [n_heads, key_stride], of the job's scratch
  float scale[kMaxJobHeads];
};

inline bool quantize_queries(const AttentionJob& job, Queries& queries) {
  const int head_dim = job.shape.head_dim, stride = job.shape.key_stride;
  queries.q = reinterpret_cast<std::int16_t*>(job.scratch + padded_head(head_dim));
  bool is_nonfinite = false;
  for (int head = 0; head < job.n_heads; ++head) {
    std::int16_t* q = queries.q + head * stride;
    const Quantization by =
        rotate(job.shape, job.q + static_cast<std::size_t>(head) * head_dim, format::nc1::kQueryMax, job.scratch);
    quantize(job.scratch, head_dim, by, q);
    for (int i = head_dim; i < stride; ++i) q[i] = 0;
    queries.scale[head] = by.scale;
    is_nonfinite |= by.is_nonfinite;
  }
  return is_nonfinite;
}

// One split for all heads of a job, so that its keys and values are read once from where they are far away.
inline bool sum_split(const AttentionJob& job, const Queries& queries, int split, float* sums) {
  const int head_dim = job.shape.head_dim, split_begin = split * format::nc1::kSplit;
  const int split_end = split_begin + format::nc1::kSplit;
  const int begin = split_begin > job.first_key ? split_begin : job.first_key;
  const int n = (split_end < job.n_keys ? split_end : job.n_keys) - begin;
  const int unseen = begin % kLanes;  // whole vectors of keys have scores
  bool is_nonfinite = false;
  for (int head = 0; head < job.n_heads; ++head, sums += split_sums_floats(head_dim)) {
    alignas(64) float scores[format::nc1::kSplit];
    SplitWeights weights;
    SplitSums& to = *reinterpret_cast<SplitSums*>(sums);
    split_scores(job, head, queries.q + head * job.shape.key_stride, begin - unseen, n + unseen, scores);
    is_nonfinite |= split_weights(job, queries.scale[head], begin, n, scores + unseen, weights, to);
    sum_values(job.values + static_cast<std::size_t>(begin) * head_dim, head_dim, weights.u, n, to.values());
  }
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
      if (split == job.first_key / format::nc1::kSplit) {
        run = {one.m, 0.0F};
        for (int i = 0; i < head_dim; ++i) o[i] = 0.0F;
      }
      merge(one, head_dim, run, o);
    }
    if (last * format::nc1::kSplit < job.n_keys) continue;
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
  for (int split = job.first_key / format::nc1::kSplit; split * format::nc1::kSplit < job.n_keys; ++split) {
    is_nonfinite |= sum_split(job, queries, split, sums);
    attention_merge(job, split, split + 1, 0, sums, states);
  }
  return is_nonfinite;
}

}  // namespace
}  // namespace nibble::kernels::cpu
