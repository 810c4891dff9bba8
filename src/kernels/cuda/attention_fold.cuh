// The fold over the splits of decoded tokens (section 7, steps 5 and 6), by a thread block. The chain is left to right
// for every element, and little else may wait for it: sums come into shared memory a piece ahead, factors of 32 splits
// are made at once (m before a split is a running maximum), and where no output is scaled down the chain is one
// instruction a split.
#pragma once

#include "kernels/cuda/attention_decode.cuh"

namespace nibble::kernels::cuda {

constexpr int kFoldAhead = 16;  // splits whose sums are on their way before the first is used

// Neighbouring heads of a row whose sums lie in a.partial, as floats.
struct FoldHeads {
  int row, first, count;
};

// Memory of a fold in pieces of so many splits, a multiple of kFoldAhead.
struct FoldLayout {
  int vector, ints, piece, n_heads, n_pieces;  // n_pieces: 2 if one comes while another is at work, or 1
  __host__ __device__ FoldLayout(int head_dim, int heads, int splits_of_piece, int pieces)
      : vector((head_dim + 3) / 4 * 4),
        ints(partial_ints(head_dim)),
        piece(splits_of_piece),
        n_heads(heads),
        n_pieces(pieces) {}
  __host__ __device__ int sums() const { return n_heads * vector; }  // floats before, as of all that follow
  __host__ __device__ int factors() const { return sums() + n_pieces * n_heads * piece * ints; }
  __host__ __device__ int bytes() const { return (factors() + n_heads * 4 * piece) * static_cast<int>(sizeof(float)); }
};

// Of the splits of a piece, by head: what is left of outputs before them, what their sums are worth, R, and what that
// is worth.
struct FoldFactors {
  const float *old_part, *new_part, *total, *total_part;
  __device__ FoldFactors(const float* of_head, int piece)
      : old_part(of_head), new_part(of_head + piece), total(of_head + 2 * piece), total_part(of_head + 3 * piece) {}
};

struct FoldShared {
  int m_run[kDecodeQueries], m_next[kDecodeQueries];  // before and after the piece
  int group_m[kDecodeQueries * kDecodeWarps];         // [heads, groups of 32 splits of the piece]
  u32 plain[kDecodeQueries * kDecodeWarps];           // bits of the splits before which outputs are not scaled down
  float totals[kDecodeQueries];
};

// x = terms[i * stride] * worth[i] + x * old_part[i], left to right.
template <bool kSnaps>
__device__ inline float fold_chain(float x, const float* terms, int stride, const float* worth, const float* old_part,
                                   int n, const u32* plain) {
  constexpr u32 kAll = (1u << kFoldAhead) - 1;
  for (int base = 0; base < n; base += kFoldAhead) {
    float term[kFoldAhead], weight[kFoldAhead];
#pragma unroll
    for (int i = 0; i < kFoldAhead; ++i) term[i] = terms[min(base + i, n - 1) * stride];
#pragma unroll
    for (int i = 0; i < kFoldAhead; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(worth + base + i);
      weight[i] = four.x, weight[i + 1] = four.y, weight[i + 2] = four.z, weight[i + 3] = four.w;
    }
    if (base + kFoldAhead <= n && (plain[base / kWarp] >> base % kWarp & kAll) == kAll) {
#pragma unroll
      for (int i = 0; i < kFoldAhead; ++i) x = format::fma_rn(term[i], weight[i], x);
      continue;
    }
#pragma unroll
    for (int i = 0; i < kFoldAhead; ++i) {
      if (base + i >= n) break;
      const float part = old_part[base + i], old = x * part;
      const bool vanishes = kSnaps && part < 1.0f && format::abs_value(old) < nc1::kTinyOutput;
      x = format::fma_rn(term[i], weight[i], vanishes ? 0.0f : old);
    }
  }
  return x;
}

// m, R and e of a piece's splits become factors; a warp takes 32 splits of a head at once.
__device__ inline void make_factors(FoldShared& s, const FoldLayout& layout, const float* sums, float* factors, int n) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, groups = (n + kWarp - 1) / kWarp;
  const auto tail_of = [&](int group) {
    const int split = min(group % groups * kWarp + lane, n - 1);
    return *reinterpret_cast<const int4*>(sums + (group / groups * n + split + 1) * layout.ints - 4);
  };
  if (groups > 1) {
    for (int group = warp; group < layout.n_heads * groups; group += kDecodeWarps) {
      const int m = __reduce_max_sync(kAllLanes, tail_of(group).x);
      if (lane == 0) s.group_m[group] = m;
    }
    __syncthreads();
  }
  for (int group = warp; group < layout.n_heads * groups; group += kDecodeWarps) {
    const int4 tail = tail_of(group);
    const int head = group / groups, split = group % groups * kWarp + lane;
    int m_before = s.m_run[head];
    for (int earlier = head * groups; earlier < group; ++earlier) m_before = max(m_before, s.group_m[earlier]);
    int m_after = max(tail.x, m_before);
#pragma unroll
    for (int apart = 1; apart < kWarp; apart *= 2) {
      const int other = __shfl_up_sync(kAllLanes, m_after, apart);
      if (lane >= apart) m_after = max(m_after, other);
    }
    const int up = __shfl_up_sync(kAllLanes, m_after, 1);
    if (lane != 0) m_before = up;
    if (m_before == kUnseen) m_before = tail.x;  // the first split of all
    const Factors by = merge_factors(m_before, tail.x, __int_as_float(tail.z));
    if (split < n) {
      float* at = factors + head * 4 * layout.piece + split;
      at[0] = by.old_part;
      at[layout.piece] = by.new_part;
      at[2 * layout.piece] = static_cast<float>(tail.y);
      at[3 * layout.piece] = pow2_or_zero(tail.x - m_after) * format::pow2(-nc1::kSumBits);
    }
    const u32 plain = __ballot_sync(kAllLanes, by.old_part == 1.0f);
    const int m_last = __shfl_sync(kAllLanes, m_after, kWarp - 1);
    if (lane == 0) s.plain[group] = plain;
    if (lane == 0 && group % groups == groups - 1) s.m_next[head] = m_last;
  }
  __syncthreads();
}

// By all threads, in memory of layout.bytes() that nobody uses any more.
__device__ inline void fold_heads(const AttentionArgs& a, const FoldHeads& heads, int n_splits, float* memory,
                                  const FoldLayout& layout) {
  __shared__ FoldShared s;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  float *o = memory, *factors = memory + layout.factors();  // [heads, vector], [heads, 4, piece]
  const auto sums_of = [&](int first) {                     // [heads, splits of the piece, ints]
    return memory + layout.sums() +
           first / layout.piece % layout.n_pieces * layout.n_heads * layout.piece * layout.ints;
  };
  const auto fetch = [&](int first) {
    const int n = min(layout.piece, n_splits - first), chunks = n * layout.ints / 4;  // of 16 bytes, a head
    for (int i = 0; i < layout.n_heads; ++i) {
      const std::size_t head = static_cast<std::size_t>(heads.row) * a.n_heads + heads.first + i;
      const std::int32_t* from = a.partial + (head * a.n_splits + first) * layout.ints;
      float* to = sums_of(first) + i * n * layout.ints;
      for (int chunk = thread; chunk < chunks; chunk += kDecodeThreads) copy_16(to + 4 * chunk, from + 4 * chunk);
    }
  };

  fetch(0);
  commit_copies();
  for (int i = thread; i < layout.n_heads * layout.vector; i += kDecodeThreads) o[i] = 0.0f;
  if (thread < kDecodeQueries) {
    s.totals[thread] = 0.0f;
    s.m_run[thread] = kUnseen;
  }
  const int dim_warps = (a.head_dim + kWarp - 1) / kWarp;
  for (int first = 0; first < n_splits; first += layout.piece) {
    if (first + layout.piece < n_splits) fetch(first + layout.piece);
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    const int n = min(layout.piece, n_splits - first), groups = (n + kWarp - 1) / kWarp;
    make_factors(s, layout, sums_of(first), factors, n);
    // A warp takes 32 dimensions of a head, or its total.
    for (int unit = warp; unit < layout.n_heads * (dim_warps + 1); unit += kDecodeWarps) {
      const int head = unit / (dim_warps + 1), part = unit % (dim_warps + 1), dim = part * kWarp + lane;
      const FoldFactors by(factors + head * 4 * layout.piece, layout.piece);
      const u32* plain = s.plain + head * groups;
      if (part == dim_warps) {
        const float l = fold_chain<false>(s.totals[head], by.total, 1, by.total_part, by.old_part, n, plain);
        __syncwarp();  // all lanes have read the total before
        if (lane == 0) {
          s.totals[head] = l;
          s.m_run[head] = s.m_next[head];
        }
      } else if (dim < a.head_dim) {
        float& out = o[head * layout.vector + dim];
        out = fold_chain<true>(out, sums_of(first) + head * n * layout.ints + dim, layout.ints, by.new_part,
                               by.old_part, n, plain);
      }
    }
    __syncthreads();
  }
  for (int i = warp; i < layout.n_heads; i += kDecodeWarps) {
    finish_head(a, o + i * layout.vector, s.totals[i], heads.row, heads.first + i);
  }
}

}  // namespace nibble::kernels::cuda
