// The softmax of a prompt's split (section 7, steps 3 and 4) where a warp has 16 queries against all 128 keys in its
// registers: thread 4g + t holds of rows g and g + 8 the keys 4t .. 4t + 3 of each sixteen. Shared by the kernels of
// attention_prompt.cu and attention_prompt_sm90.cu, which differ in who multiplies.
//
// Integers become floats by the constant of format::rne, whose additions run at full rate where conversions do not; the
// results are the same. The largest n of a row is that of its largest score, so exponents are not kept.
#pragma once

#include "kernels/cuda/attention_merge.cuh"

namespace nibble::kernels::cuda {

constexpr int kScoreTiles = kSplit / 8;         // of eight keys
constexpr int kThreadScores = 4 * kScoreTiles;  // of a thread: element 4 * tile + i is row g + i / 2 * 8

// Queries that share a key-value head: rows_per_tile rows of one sequence by the heads of a group.
struct PromptTile {
  int kv_head, group, first_row;
  __device__ Query query(const AttentionArgs& a, int index) const {
    const int row = first_row + index / group;
    if (index >= a.rows_per_tile * group || row >= a.n_rows) return {-1, 0};
    return {row, kv_head * group + index % group};
  }
};

// The key of the split that the first column of a thread's pair stands for.
__device__ constexpr int key_of(int tile, int t) {
  return tile / 2 * 16 + 4 * t + tile % 2 * 2;
}

// What a thread knows of its two rows; the four threads of a row know the same.
struct PromptRows {
  float q_scale[2];
  int n_keys[2];  // that the row sees, were there no window; 0 where there is none
  // of the split at hand
  KeyRange keys[2];  // that the row sees
  bool is_nan[2];    // the scales of a score overflowed
  int m[2], r[2];
  float e[2];
  // of the splits so far
  int m_run[2] = {kUnseen, kUnseen};
  float l[2] = {};

  __device__ bool sees(int half) const { return keys[half].end != 0; }
};

// What the scores of a split ask for: with kCareful some keys are not seen or a product of scales may overflow, with
// kWide a score may be beyond the limit or its power too small to count. With kTame there is nothing to ask.
enum class Care { kTame, kWide, kCareful };

// The scale of a thread's key in element i of a tile, out of the four of the tile and its neighbour.
__device__ inline float scale_of(const float4& four, int tile, int i) {
  return tile % 2 == 0 ? (i % 2 == 0 ? four.x : four.y) : (i % 2 == 0 ? four.z : four.w);
}
__device__ inline float4 scales_of(const float* scales, int tile, int t) {
  return *reinterpret_cast<const float4*>(scales + key_of(tile / 2 * 2, t));
}

// Step 3: products become scores, clamped where kCareful; their largest and, otherwise, smallest of each row.
template <bool kCareful>
__device__ inline void scale_scores(const AttentionArgs& a, const float* key_scales, float (&p)[kThreadScores],
                                    PromptRows& rows, float (&largest)[2], float (&smallest)[2]) {
  constexpr u32 kInfinity = 0x7F800000u;
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    smallest[half] = format::bits_float(kInfinity);
    largest[half] = -smallest[half];
  }
#pragma unroll
  for (int tile = 0; tile < kScoreTiles; ++tile) {
    const float4 scales = scales_of(key_scales, tile, t);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int half = i / 2;
      float score = p[4 * tile + i] * (rows.q_scale[half] * scale_of(scales, tile, i));
      if constexpr (kCareful) {
        const bool is_seen = rows.keys[half].has(key_of(tile, t) + i % 2);
        if (is_seen && format::is_nan(score)) {
          rows.is_nan[half] = true;
          score = 0.0f;
        }
        score = fminf(fmaxf(score, -a.score_limit), a.score_limit);
        if (is_seen) largest[half] = fmaxf(largest[half], score);
      } else {
        largest[half] = fmaxf(largest[half], score);
        smallest[half] = fminf(smallest[half], score);
      }
      p[4 * tile + i] = score;
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int apart = 1; apart < 4; apart *= 2) {
      largest[half] = fmaxf(largest[half], __shfl_xor_sync(kAllLanes, largest[half], apart));
      if (!kCareful) smallest[half] = fminf(smallest[half], __shfl_xor_sync(kAllLanes, smallest[half], apart));
    }
  }
}

// Step 4: scores become weights, whose largest is w_bits; the sums of a row's powers.
//
// n is made as n - m, so that its last bits are the exponent of the power and adding them to that of P(f) is the whole
// product. An odd m would change which way a tie is rounded: of such a row one less is taken off, and powers and
// weights come out as their doubles.
template <Care kCare>
__device__ inline void weigh_scores(const AttentionArgs& a, const float* value_scales, float (&p)[kThreadScores],
                                    const PromptRows& rows, u32 (&r_sum)[2], u32 (&w_bits)[2]) {
  const int t = threadIdx.x % 4;
  float integers[2], sum_unit[2];
  u32 least[2];  // bits of the least n whose power counts
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int odd = rows.m[half] & 1;
    integers[half] = kIntegers - static_cast<float>(rows.m[half] - odd);
    sum_unit[half] = format::pow2(nc1::kSumBits - odd);
    least[half] = kIntegerBits + static_cast<u32>(odd + nc1::kExponentFloor);
  }
#pragma unroll
  for (int tile = 0; tile < kScoreTiles; ++tile) {
    const float4 scales = scales_of(value_scales, tile, t);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int half = i / 2;
      const float score = p[4 * tile + i];
      const float n = format::fma_rn(score, a.score_scale, integers[half]);
      const float f = format::fma_rn(score, a.score_scale, integers[half] - n);
      const u32 bits = format::float_bits(n);
      float part = format::bits_float((bits << 23) + format::float_bits(format::exp2_poly(f)));
      if constexpr (kCare != Care::kTame) {
        bool counts = bits >= least[half];
        if (kCare == Care::kCareful) counts = counts && rows.keys[half].has(key_of(tile, t) + i % 2);
        if (!counts) part = 0.0f;
      }
      r_sum[half] += format::float_bits(format::fma_rn(part, sum_unit[half], kIntegers));
      float weight = part * scale_of(scales, tile, i);
      // What is not seen may have the scale NaN.
      if (kCare == Care::kCareful && part == 0.0f) weight = 0.0f;
      p[4 * tile + i] = weight;
      w_bits[half] = max(w_bits[half], format::float_bits(weight));
    }
  }
}

// Steps 3 and 4 but for the last rounding: scores become weights w, and rne(w, inverse) is u. m, r and e of the rows.
template <bool kCareful>
__device__ inline void weigh_rows(const AttentionArgs& a, const float* key_scales, const float* value_scales,
                                  float (&p)[kThreadScores], PromptRows& rows, float (&inverse)[2]) {
  float largest[2], smallest[2];
  scale_scores<kCareful>(a, key_scales, p, rows, largest, smallest);
  bool is_tame = !kCareful;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    is_tame = is_tame && largest[half] <= a.score_limit && smallest[half] >= -a.score_limit;
    largest[half] = fminf(fmaxf(largest[half], -a.score_limit), a.score_limit);
    rows.m[half] = kCareful && !rows.sees(half) ? kUnseen : format::rne(largest[half], a.score_scale);
    is_tame = is_tame && format::rne(smallest[half], a.score_scale) >= rows.m[half] + nc1::kExponentFloor;
  }
  u32 r_sum[2] = {}, w_bits[2] = {};
  if constexpr (kCareful) {
    weigh_scores<Care::kCareful>(a, value_scales, p, rows, r_sum, w_bits);
  } else if (__all_sync(kAllLanes, is_tame)) {
    weigh_scores<Care::kTame>(a, value_scales, p, rows, r_sum, w_bits);
  } else {
#pragma unroll
    for (int i = 0; i < kThreadScores; ++i) p[i] = fminf(fmaxf(p[i], -a.score_limit), a.score_limit);
    weigh_scores<Care::kWide>(a, value_scales, p, rows, r_sum, w_bits);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    r_sum[half] -= 2 * kScoreTiles * kIntegerBits;
#pragma unroll
    for (int apart = 1; apart < 4; apart *= 2) {
      r_sum[half] += __shfl_xor_sync(kAllLanes, r_sum[half], apart);
      w_bits[half] = max(w_bits[half], __shfl_xor_sync(kAllLanes, w_bits[half], apart));
    }
    const float unit = (rows.m[half] & 1) != 0 ? 0.5f : 1.0f;  // see weigh_scores
    const float w = format::bits_float(w_bits[half]) * unit;
    const bool is_seen = w >= nc1::kTinyWeight;
    inverse[half] = is_seen ? format::div_rn(static_cast<float>(nc1::kProbabilityMax), w) * unit : 0.0f;
    rows.e[half] = is_seen ? format::div_rn(w, static_cast<float>(nc1::kProbabilityMax)) : 0.0f;
    rows.r[half] = static_cast<int>(r_sum[half]);
  }
}

// Whether a product of a key's scale and one of the warp's queries' may be infinite or no number.
__device__ inline bool may_overflow(const float* key_scales, const PromptRows& rows) {
  const int lane = threadIdx.x % kWarp;
  u32 bits = 0;
#pragma unroll
  for (int i = 0; i < kSplit / kWarp; ++i) bits = max(bits, format::abs_bits(key_scales[lane + kWarp * i]));
  const float largest = format::bits_float(__reduce_max_sync(kAllLanes, bits));
  const bool bad = format::is_nonfinite(largest * rows.q_scale[0]) || format::is_nonfinite(largest * rows.q_scale[1]);
  return __any_sync(kAllLanes, bad);
}

// The same for a split that begins at first_key, whatever it needs.
__device__ inline void weigh_split(const AttentionArgs& a, const float* key_scales, const float* value_scales,
                                   int first_key, float (&p)[kThreadScores], PromptRows& rows, float (&inverse)[2]) {
  bool is_whole = true;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    rows.keys[half] = keys_of_split(a, rows.n_keys[half], first_key);
    rows.is_nan[half] = false;
    is_whole = is_whole && rows.keys[half].begin == 0 && rows.keys[half].end == kSplit;
  }
  if (__all_sync(kAllLanes, is_whole) && !may_overflow(key_scales, rows)) {
    weigh_rows<false>(a, key_scales, value_scales, p, rows, inverse);
  } else {
    weigh_rows<true>(a, key_scales, value_scales, p, rows, inverse);
  }
}

// Step 5 of the rows' totals; what their outputs are folded by.
__device__ inline void fold_totals(PromptRows& rows, Factors (&by)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (rows.m_run[half] == kUnseen) rows.m_run[half] = rows.m[half];
    by[half] = merge_factors(rows.m_run[half], rows.m[half], rows.e[half]);
    if (!rows.sees(half)) continue;
    rows.l[half] = merge_total(rows.l[half], rows.r[half], rows.m_run[half], rows.m[half]);
    rows.m_run[half] = max(rows.m_run[half], rows.m[half]);
  }
}

// Whether nothing of the warp's outputs is scaled down, and factors lie where a power of two may be taken into them.
__device__ inline bool is_plain_fold(const PromptRows& rows, const Factors (&by)[2]) {
  constexpr float kLeast = 0x1p-100f, kMost = 0x1p100f;
  bool is_plain = true;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    is_plain = is_plain && by[half].old_part == 1.0f && rows.sees(half) && by[half].new_part >= kLeast &&
               by[half].new_part <= kMost;
  }
  return __all_sync(kAllLanes, is_plain);
}

}  // namespace nibble::kernels::cuda
