// Attention of many rows of one sequence (section 7), heads of 64 or 128: 64 queries that share a key-value head by a
// thread block, 16 by each of its four warps. A split's keys and values come into shared memory while those of the
// split before are at work; a warp sees all 128 keys, so that scores, weights and outputs never leave its registers.
//
// Which key is which column of a score fragment is chosen such that a thread's weights are what the next product wants
// from it: keys 4t .. 4t + 3 of each 16. Integers become floats by the constant of format::rne, whose additions run at
// full rate where conversions do not; the results are the same.
#include "kernels/cuda/attention_softmax.cuh"

namespace nibble::kernels::cuda {
namespace {

constexpr int kPromptQueries = 64;
constexpr u32 kLowUnit = 32;  // of the lower plane of weights
constexpr int kValuePad = 8;  // words beyond a row of four positions: rows of a fragment in other banks

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

// Step 3 up to the f32 sum: exact chunks of 64, left to right. Two tiles at once, so that products of as many as four
// sums are on their way.
template <int kHeadDim>
__device__ void prompt_scores(const typename PromptShared<kHeadDim>::Stage& s, const u32 (&q)[kHeadDim / 16][4],
                              float (&p)[kThreadScores]) {
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
        float& score = p[4 * (pair + tile) + i];
        score = sum[tile][0][i];
        if (kChunks == 2) score = score + sum[tile][kChunks - 1][i];
      }
    }
  }
}

// Step 4, the last rounding: weights u in two planes of bytes, as fragments: the upper seven bits, and the lower three
// times 32.
__device__ inline void prompt_planes(const float (&p)[kThreadScores], const float (&inverse)[2],
                                     u32 (&high)[kSplit / 32][4], u32 (&low)[kSplit / 32][4]) {
  // u < 2^10 is the low half of its float's bits. Times 32, it has its planes in two bytes.
#pragma unroll
  for (int quad = 0; quad < kScoreTiles / 2; ++quad) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto pair = [&](int tile) {
        const float* w = p + 4 * tile + 2 * half;
        const u32 u0 = format::float_bits(format::fma_rn(w[0], inverse[half], kIntegers));
        const u32 u1 = format::float_bits(format::fma_rn(w[1], inverse[half], kIntegers));
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
                            const u32 (&u_low)[kSplit / 32][4], const PromptRows& rows, const Factors (&by)[2],
                            float (&o)[kHeadDim / 8][4]) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  constexpr float kUnit = 1.0f / kLowUnit;
  const bool is_plain = is_plain_fold(rows, by);
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
      if (!rows.sees(half)) continue;
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
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = warp * kQueries + g + 8 * half;
    rows.q_scale[half] = s.q_scale[query];
    rows.n_keys[half] = s.n_keys[query];
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
    float p[kThreadScores], inverse[2];
    prompt_scores<kHeadDim>(keys, q, p);
    weigh_split(a, keys.key_scales, keys.value_scales, first_key, p, rows, inverse);
    u32 high[kSplit / 32][4], low[kSplit / 32][4];
    prompt_planes(p, inverse, high, low);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (rows.is_nan[half]) raise_flag(a.flags, tile.query(a, warp * kQueries + g + 8 * half).row);
    }
    Factors by[2];
    fold_totals(rows, by);
    fold_values<kHeadDim>(keys, high, low, rows, by, o);
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
    const float total = __shfl_sync(kAllLanes, i < 8 ? rows.l[0] : rows.l[1], i % 8 * 4);
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
