// Attention of many rows of one sequence (section 7), heads of 64 or 128: 64 queries that share a key-value head by a
// thread block, 16 by each of its four warps. A split's keys and values come into shared memory while those of the
// split before are at work; a warp sees all 128 keys, so that scores, weights and outputs never leave its registers.
//
// Which key is which column of a score fragment is chosen such that a thread's weights are what the next product wants
// from it: keys 4t .. 4t + 3 of each 16. Integers become floats by the constant of format::rne, whose additions run at
// full rate where conversions do not; the results are the same.
#include "kernels/cuda/attention_merge.cuh"

namespace nibble::kernels::cuda {
namespace {

constexpr int kPromptQueries = 64;
constexpr int kScoreTiles = kSplit / 8;  // of eight keys
constexpr u32 kLowUnit = 32;             // of the lower plane of weights
constexpr int kValuePad = 8;             // words beyond a row of four positions: rows of a fragment in other banks

template <int kHeadDim>
struct PromptShared {
  static constexpr int kValueStride = kHeadDim + kValuePad;
  struct Stage {
    alignas(16) __half keys[kSplit][kHeadDim];  // chunks of 16 bytes trade places in odd rows
    alignas(16) u32 values[kSplit / 4][kValueStride];
    alignas(16) float key_scales[kSplit];
    alignas(16) float value_scales[kSplit];
  };
  Stage stages[2];
  float q_scale[kPromptQueries];
  int n_keys[kPromptQueries];  // that the query sees, were there no window; 0 where there is none
};

struct PromptTile {
  int kv_head, group, first_row;
  __device__ Query query(const AttentionArgs& a, int index) const {
    const int row = first_row + index / group;
    if (index >= a.rows_per_tile * group || row >= a.n_rows) return {-1, 0};
    return {row, kv_head * group + index % group};
  }
};

// Starts the copy of a split.
template <int kHeadDim>
__device__ void fetch_split(typename PromptShared<kHeadDim>::Stage& to, const CachePart& cache, int first_key) {
  constexpr int kKeyChunks = kHeadDim / 8, kValueChunks = kHeadDim / 4;  // of 16 bytes, a row
  const __half* keys = cache.keys + static_cast<std::size_t>(first_key) * kHeadDim;
  for (int i = threadIdx.x; i < kSplit * kKeyChunks; i += kThreads) {
    const int row = i / kKeyChunks, chunk = i % kKeyChunks;
    copy_16(&to.keys[row][(chunk ^ (row & 1)) * 8], keys + i * 8);
  }
  const std::int8_t* values = cache.values + static_cast<std::size_t>(first_key) * kHeadDim;
  for (int i = threadIdx.x; i < kSplit / 4 * kValueChunks; i += kThreads) {
    copy_16(&to.values[i / kValueChunks][i % kValueChunks * 4], values + i * 16);
  }
  if (threadIdx.x < kSplit / 4) {
    copy_16(&to.key_scales[threadIdx.x * 4], cache.key_scales + first_key + threadIdx.x * 4);
  } else if (threadIdx.x < kSplit / 2) {
    const int i = (threadIdx.x - kSplit / 4) * 4;
    copy_16(&to.value_scales[i], cache.value_scales + first_key + i);
  }
}

// Steps 1 and 2 for the warp's 16 queries, which end as fragments in registers. A chunk of 64 dimensions may be summed
// in any order, so each thread takes a quarter of it that lies together.
template <int kHeadDim>
__device__ void load_prompt_queries(const AttentionArgs& a, const PromptTile& tile, PromptShared<kHeadDim>& s,
                                    u32 (&q)[kHeadDim / 16][4]) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  auto* integers = &s.stages[0].keys[warp * kQueries];  // [kQueries, kHeadDim]
  float* x = reinterpret_cast<float*>(&s.stages[1].keys[0][0]) + warp * kHeadDim;
  for (int i = 0; i < kQueries; ++i) {
    const int index = warp * kQueries + i;
    const Query which = tile.query(a, index);
    Quantizer by = {0.0f, 0.0f, false};
    if (which.row >= 0) {
      const float* source = a.q + (static_cast<std::size_t>(which.row) * a.n_heads + which.head) * kHeadDim;
      for (int dim = lane; dim < kHeadDim; dim += kWarp) x[dim] = source[dim];
      hadamard(x, kHeadDim, kHeadDim);
      by = quantizer_of(x, kHeadDim, nc1::kQueryMax);
      if (by.is_nonfinite && lane == 0) raise_flag(a.flags, which.row);
    }
    for (int dim = lane; dim < kHeadDim; dim += kWarp) {
      integers[i][dim] = __int2half_rn(which.row >= 0 ? quantize(x[dim], by) : 0);
    }
    if (lane == 0) {
      s.q_scale[index] = by.scale;
      s.n_keys[index] = which.row >= 0 ? a.rows[which.row].pos + 1 : 0;
    }
    __syncwarp();
  }
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    const int dim = step / 4 * nc1::kScoreChunk + t * 16 + step % 4 * 4;
    const uint2 low = *reinterpret_cast<const uint2*>(&integers[g][dim]);
    const uint2 high = *reinterpret_cast<const uint2*>(&integers[g + 8][dim]);
    q[step][0] = low.x;
    q[step][1] = high.x;
    q[step][2] = low.y;
    q[step][3] = high.y;
  }
}

// The key of the split that the first column of a thread's pair stands for.
__device__ inline int key_of(int tile, int t) {
  return tile / 2 * 16 + 4 * t + tile % 2 * 2;
}

// Step 3 up to the f32 sum: exact chunks of 64, left to right. Two tiles at once, so that products of as many as four
// sums are on their way.
template <int kHeadDim>
__device__ void prompt_scores(const typename PromptShared<kHeadDim>::Stage& s, const u32 (&q)[kHeadDim / 16][4],
                              float (&p)[kScoreTiles][4]) {
  constexpr int kChunks = kHeadDim / nc1::kScoreChunk;
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int pair = 0; pair < kScoreTiles; pair += 2) {
    float sum[2][kChunks][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint4 k[2][kChunks];
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        const auto* row = reinterpret_cast<const uint4*>(s.keys[key_of(pair + tile, g / 2) + g % 2]);
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) k[tile][chunk] = row[(chunk * 8 + 2 * t + half) ^ (g & 1)];
      }
#pragma unroll
      for (int step = 0; step < 2; ++step) {
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
          for (int chunk = 0; chunk < kChunks; ++chunk) {
            const uint4& keys = k[tile][chunk];
            mma_f16(sum[tile][chunk], q[chunk * 4 + 2 * half + step], step == 0 ? keys.x : keys.z,
                    step == 0 ? keys.y : keys.w);
          }
        }
      }
    }
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        p[pair + tile][i] = sum[tile][0][i];
        if (kChunks == 2) p[pair + tile][i] = p[pair + tile][i] + sum[tile][kChunks - 1][i];
      }
    }
  }
}

// What a thread knows of its rows g and g + 8 in a split; the four threads of a row know the same.
struct PromptRows {
  float q_scale[2];
  KeyRange keys[2];  // that the row sees, of this split
  int m[2], r[2];
  float e[2];
};

// What the scores of a split ask for: with kCareful some keys are not seen or a product of scales may overflow, with
// kWide a score may be beyond the limit or its power too small to count. With kTame there is nothing to ask.
enum class Care { kTame, kWide, kCareful };

// Step 3: products become scores, clamped where kCareful; their largest and, otherwise, smallest of each row.
template <bool kCareful, typename Stage>
__device__ inline void scale_scores(const AttentionArgs& a, const Stage& s, float (&p)[kScoreTiles][4],
                                    const PromptRows& rows, bool (&is_nan)[2], float (&largest)[2],
                                    float (&smallest)[2]) {
  constexpr u32 kInfinity = 0x7F800000u;
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    smallest[half] = format::bits_float(kInfinity);
    largest[half] = -smallest[half];
  }
#pragma unroll
  for (int tile = 0; tile < kScoreTiles; ++tile) {
    const float2 scale = *reinterpret_cast<const float2*>(&s.key_scales[key_of(tile, t)]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int half = i / 2;
      float score = p[tile][i] * (rows.q_scale[half] * (i % 2 == 0 ? scale.x : scale.y));
      if constexpr (kCareful) {
        const bool is_seen = rows.keys[half].has(key_of(tile, t) + i % 2);
        if (is_seen && format::is_nan(score)) {
          is_nan[half] = true;
          score = 0.0f;
        }
        score = fminf(fmaxf(score, -a.score_limit), a.score_limit);
        if (is_seen) largest[half] = fmaxf(largest[half], score);
      } else {
        largest[half] = fmaxf(largest[half], score);
        smallest[half] = fminf(smallest[half], score);
      }
      p[tile][i] = score;
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
template <Care kCare, typename Stage>
__device__ inline void weigh_scores(const AttentionArgs& a, const Stage& s, float (&p)[kScoreTiles][4],
                                    const PromptRows& rows, u32 (&r_sum)[2], u32 (&w_bits)[2]) {
  const int t = threadIdx.x % 4;
  u32 exponent_base[2];  // added to the bits of n in place: the exponent of 2^(n - m)
  u32 least[2];          // bits of the least n whose power counts
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    exponent_base[half] = static_cast<u32>(127 - rows.m[half]) << 23;
    least[half] = kIntegerBits + static_cast<u32>(rows.m[half] + nc1::kExponentFloor);
  }
#pragma unroll
  for (int tile = 0; tile < kScoreTiles; ++tile) {
    const float2 scale = *reinterpret_cast<const float2*>(&s.value_scales[key_of(tile, t)]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int half = i / 2;
      const float n = format::fma_rn(p[tile][i], a.score_scale, kIntegers);
      const float f = format::fma_rn(p[tile][i], a.score_scale, -(n - kIntegers));
      const u32 bits = format::float_bits(n);
      float power = format::bits_float((bits << 23) + exponent_base[half]);
      bool counts = true;
      if (kCare != Care::kTame) counts = bits >= least[half];
      if (kCare == Care::kCareful) counts = counts && rows.keys[half].has(key_of(tile, t) + i % 2);
      if (!counts) power = 0.0f;
      const float part = format::exp2_poly(f) * power;  // exact: a power of two
      r_sum[half] += format::float_bits(format::fma_rn(part, format::pow2(nc1::kSumBits), kIntegers));
      // What is not seen may have the scale NaN.
      const float weight = kCare == Care::kCareful && !counts ? 0.0f : part * (i % 2 == 0 ? scale.x : scale.y);
      p[tile][i] = weight;
      w_bits[half] = max(w_bits[half], format::float_bits(weight));
    }
  }
}

// Steps 3 and 4: scores become weights u in two planes of bytes, as fragments: the upper seven bits, and the lower
// three times 32.
template <bool kCareful, typename Stage>
__device__ inline void prompt_weights(const AttentionArgs& a, const Stage& s, float (&p)[kScoreTiles][4],
                                      PromptRows& rows, bool (&is_nan)[2], u32 (&high)[kSplit / 32][4],
                                      u32 (&low)[kSplit / 32][4]) {
  float largest[2], smallest[2];
  scale_scores<kCareful>(a, s, p, rows, is_nan, largest, smallest);
  bool is_tame = !kCareful;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    is_tame = is_tame && largest[half] <= a.score_limit && smallest[half] >= -a.score_limit;
    largest[half] = fminf(fmaxf(largest[half], -a.score_limit), a.score_limit);
    // n grows with the score, so the largest n is that of the largest score.
    rows.m[half] = kCareful && rows.keys[half].end == 0 ? kUnseen : format::rne(largest[half], a.score_scale);
    is_tame = is_tame && format::rne(smallest[half], a.score_scale) >= rows.m[half] + nc1::kExponentFloor;
  }
  u32 r_sum[2] = {}, w_bits[2] = {};
  if constexpr (kCareful) {
    weigh_scores<Care::kCareful>(a, s, p, rows, r_sum, w_bits);
  } else if (__all_sync(kAllLanes, is_tame)) {
    weigh_scores<Care::kTame>(a, s, p, rows, r_sum, w_bits);
  } else {
#pragma unroll
    for (int i = 0; i < 4 * kScoreTiles; ++i) {
      p[i / 4][i % 4] = fminf(fmaxf(p[i / 4][i % 4], -a.score_limit), a.score_limit);
    }
    weigh_scores<Care::kWide>(a, s, p, rows, r_sum, w_bits);
  }
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    r_sum[half] -= 2 * kScoreTiles * kIntegerBits;
#pragma unroll
    for (int apart = 1; apart < 4; apart *= 2) {
      r_sum[half] += __shfl_xor_sync(kAllLanes, r_sum[half], apart);
      w_bits[half] = max(w_bits[half], __shfl_xor_sync(kAllLanes, w_bits[half], apart));
    }
    const float w = format::bits_float(w_bits[half]);
    const bool is_seen = w >= nc1::kTinyWeight;
    inverse[half] = is_seen ? format::div_rn(static_cast<float>(nc1::kProbabilityMax), w) : 0.0f;
    rows.e[half] = is_seen ? format::div_rn(w, static_cast<float>(nc1::kProbabilityMax)) : 0.0f;
    rows.r[half] = static_cast<int>(r_sum[half]);
  }
  // u < 2^10 is the low half of its float's bits. Times 32, it has its planes in two bytes.
#pragma unroll
  for (int quad = 0; quad < kScoreTiles / 2; ++quad) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto pair = [&](int tile) {
        const u32 u0 = format::float_bits(format::fma_rn(p[tile][2 * half], inverse[half], kIntegers));
        const u32 u1 = format::float_bits(format::fma_rn(p[tile][2 * half + 1], inverse[half], kIntegers));
        return __byte_perm(u0, u1, 0x5410) * kLowUnit;
      };
      const u32 first = pair(2 * quad), second = pair(2 * quad + 1);
      const int at = quad % 2 * 2 + half;
      high[quad / 2][at] = __byte_perm(first, second, 0x7531);
      low[quad / 2][at] = __byte_perm(first, second, 0x6420);
    }
  }
}

// Steps 4 and 5: A of the split, folded into o. Dimension 32 * part + 4 * n + j is column n of o[4 * part + j].
template <int kHeadDim>
__device__ void fold_values(const typename PromptShared<kHeadDim>::Stage& s, const u32 (&u_high)[kSplit / 32][4],
                            const u32 (&u_low)[kSplit / 32][4], const Factors (&by)[2], const bool (&is_seen)[2],
                            float (&o)[kHeadDim / 8][4]) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  constexpr float kUnit = 1.0f / kLowUnit, kLeastPart = 0x1p-100f;  // whose product with the unit is exact
  const bool is_plain =
      __all_sync(kAllLanes, by[0].old_part == 1.0f && by[1].old_part == 1.0f && is_seen[0] && is_seen[1] &&
                                by[0].new_part >= kLeastPart && by[1].new_part >= kLeastPart);
  const float new_part[2] = {by[0].new_part * kUnit, by[1].new_part * kUnit};
#pragma unroll
  for (int part = 0; part < kHeadDim / 32; ++part) {
    int high[4][4], low[4][4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) high[j][i] = low[j][i] = static_cast<int>(kIntegerBits);
    }
#pragma unroll
    for (int step = 0; step < kSplit / 32; ++step) {
      const uint4 v0 = *reinterpret_cast<const uint4*>(&s.values[8 * step + t][32 * part + 4 * g]);
      const uint4 v1 = *reinterpret_cast<const uint4*>(&s.values[8 * step + 4 + t][32 * part + 4 * g]);
      const u32 first[4] = {v0.x, v0.y, v0.z, v0.w}, second[4] = {v1.x, v1.y, v1.z, v1.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        mma_u8_s8(high[j], u_high[step], first[j], second[j]);
        mma_u8_s8(low[j], u_low[step], first[j], second[j]);
      }
    }
    float sum[4][4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // A multiple of 32, of 24 bits: exact.
        sum[j][i] = format::fma_rn(__int_as_float(high[j][i]) - kIntegers, 8.0f * kLowUnit,
                                   __int_as_float(low[j][i]) - kIntegers);
      }
    }
    if (is_plain) {  // one branch for many outputs
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          o[4 * part + j][i] = format::fma_rn(sum[j][i], new_part[i / 2], o[4 * part + j][i]);
        }
      }
      continue;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!is_seen[half]) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const float old = o[4 * part + j][i] * by[half].old_part;
          o[4 * part + j][i] =
              format::fma_rn(sum[j][i] * kUnit, by[half].new_part, format::abs_value(old) < by[half].snap ? 0.0f : old);
        }
      }
    }
  }
}

// Whether a product of a key's scale and one of the warp's queries' may be infinite or no number.
template <typename Stage>
__device__ bool may_overflow(const Stage& s, const PromptRows& rows) {
  const int lane = threadIdx.x % kWarp;
  u32 bits = 0;
#pragma unroll
  for (int i = 0; i < kSplit / kWarp; ++i) bits = max(bits, format::abs_bits(s.key_scales[lane + kWarp * i]));
  const float largest = format::bits_float(__reduce_max_sync(kAllLanes, bits));
  const bool bad = format::is_nonfinite(largest * rows.q_scale[0]) || format::is_nonfinite(largest * rows.q_scale[1]);
  return __any_sync(kAllLanes, bad);
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 2) attention_prompt_kernel(AttentionArgs a) {
  NIBBLE_DYNAMIC_SHARED(unsigned char, memory, 16);
  auto& s = *reinterpret_cast<PromptShared<kHeadDim>*>(memory);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  // The last rows see the most keys: they start first.
  const int tile_index = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const PromptTile tile = {static_cast<int>(blockIdx.y), a.n_heads / a.n_kv_heads, tile_index * a.rows_per_tile};
  const CachePart cache = cache_of(a, tile.first_row, tile.kv_head);
  const int n_keys = a.rows[min(tile.first_row + a.rows_per_tile, a.n_rows) - 1].pos + 1;
  const int first_split = splits_of_row(a, tile.first_row).first * kSplit;  // positions ascend

  u32 q[kHeadDim / 16][4];
  load_prompt_queries(a, tile, s, q);
  PromptRows rows;
  int n_seen[2], m_run[2] = {kUnseen, kUnseen};
  float l[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = warp * kQueries + g + 8 * half;
    rows.q_scale[half] = s.q_scale[query];
    n_seen[half] = s.n_keys[query];
  }
  __syncthreads();  // the queries have been read
  float o[kHeadDim / 8][4] = {};
  fetch_split<kHeadDim>(s.stages[0], cache, first_split);
  commit_copies();
  for (int first_key = first_split, stage = 0; first_key < n_keys; first_key += kSplit, stage ^= 1) {
    if (first_key + kSplit < n_keys) fetch_split<kHeadDim>(s.stages[stage ^ 1], cache, first_key + kSplit);
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    const auto& keys = s.stages[stage];
    float p[kScoreTiles][4];
    prompt_scores<kHeadDim>(keys, q, p);
    bool is_nan[2] = {}, is_seen[2], is_whole = true;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.keys[half] = keys_of_split(a, n_seen[half], first_key);
      is_seen[half] = rows.keys[half].end != 0;
      is_whole = is_whole && rows.keys[half].begin == 0 && rows.keys[half].end == kSplit;
    }
    u32 high[kSplit / 32][4], low[kSplit / 32][4];
    if (__all_sync(kAllLanes, is_whole) && !may_overflow(keys, rows)) {
      prompt_weights<false>(a, keys, p, rows, is_nan, high, low);
    } else {
      prompt_weights<true>(a, keys, p, rows, is_nan, high, low);
    }
    Factors by[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (is_nan[half]) raise_flag(a.flags, tile.query(a, warp * kQueries + g + 8 * half).row);
      if (m_run[half] == kUnseen) m_run[half] = rows.m[half];
      by[half] = merge_factors(m_run[half], rows.m[half], rows.e[half]);
      if (!is_seen[half]) continue;
      l[half] = merge_total(l[half], rows.r[half], m_run[half], rows.m[half]);
      m_run[half] = max(m_run[half], rows.m[half]);
    }
    fold_values<kHeadDim>(keys, high, low, by, is_seen, o);
    __syncthreads();  // before the stage is written again
  }

  // Step 6, each warp for its own queries.
  float* out = reinterpret_cast<float*>(memory) + warp * kQueries * kHeadDim;
  static_assert(sizeof(s.stages) >= sizeof(float) * kPromptQueries * kHeadDim);
#pragma unroll
  for (int part = 0; part < kHeadDim / 32; ++part) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      *reinterpret_cast<float4*>(out + (g + i / 2 * 8) * kHeadDim + 32 * part + 8 * t + i % 2 * 4) = {
          o[4 * part][i], o[4 * part + 1][i], o[4 * part + 2][i], o[4 * part + 3][i]};
    }
  }
  __syncwarp();
  for (int i = 0; i < kQueries; ++i) {
    const Query which = tile.query(a, warp * kQueries + i);
    const float total = __shfl_sync(kAllLanes, i < 8 ? l[0] : l[1], i % 8 * 4);
    if (which.row >= 0) finish_head(a, out + i * kHeadDim, total, which.row, which.head);
  }
}

template <int kHeadDim>
cudaError_t launch_prompt(const AttentionArgs& a, cudaStream_t stream) {
  const dim3 grid((a.n_rows + a.rows_per_tile - 1) / a.rows_per_tile, a.n_kv_heads);
  return launch_kernel(attention_prompt_kernel<kHeadDim>, {grid, kThreads, sizeof(PromptShared<kHeadDim>)}, stream, a);
}

}  // namespace

int prompt_shared_bytes(int head_dim) {
  if (head_dim == 64) return sizeof(PromptShared<64>);
  return head_dim == 128 ? static_cast<int>(sizeof(PromptShared<128>)) : 0;
}

cudaError_t launch(const PromptArgs& args, cudaStream_t stream) {
  const AttentionArgs& a = args.attention;
  return a.head_dim == 64 ? launch_prompt<64>(a, stream) : launch_prompt<128>(a, stream);
}

}  // namespace nibble::kernels::cuda
