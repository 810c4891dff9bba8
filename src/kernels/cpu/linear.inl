// Linear layers whose blocks of 64 are exact integer sums (docs/contract.md, section 4). A Format decodes one block of
// one row to 64 int16 and knows what a sum is worth; the loops over rows, blocks and tokens are here, once.
//
//   one token:      kLanes rows in flight, each row's partial sums stay in a register; sum_rows turns them into lanes
//   several tokens: a block of kLanes rows is decoded once, packed so that lanes are rows, and met by every token
//
// Both give the same bits because S is exact and every output takes the same fma chain.
#pragma once

namespace nibble::kernels::cpu {
namespace {

constexpr int kTokenGroup = 8;  // tokens whose sums stay in registers

// Sums of one block: of all 64 elements, or of its two halves where these carry scales of their own.
struct BlockSums {
  I32V first, second;
};

template <class Format>
inline int row_at(const Format& format, int row) {
  return row < format.n_out() ? row : format.n_out() - 1;  // lanes beyond the last row repeat it; they are not stored
}

inline void store_lanes(F32V acc, const LinearJob& job, int row, int n_out, int token) {
  float* out = job.out + static_cast<std::size_t>(token) * n_out + row;
  float lanes[kLanes];
  f32_store(lanes, acc);
  for (int r = 0; r < kLanes && row + r < job.row_end; ++r) {
    out[r] = job.bias != nullptr ? lanes[r] + job.bias[row + r] : lanes[r];
  }
}

// --- one token ---

template <bool kWhole, class Format>
inline F32V gemv_block(const Format& format, const Activations& in, int block, F32V acc) {
  const std::int16_t* q = format.activations(in) + static_cast<std::size_t>(block) * 64;
  const I16x32 q_first = i16_load(q), q_second = i16_load(q + 32);
  Partial first[kLanes], second[kLanes];
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) {
    I16x32 w_first, w_second;
    format.template decode<kWhole>(r, block, w_first, w_second);
    first[r] = dot(Partial{}, w_first, q_first);
    if constexpr (Format::kHalves) {
      second[r] = dot(Partial{}, w_second, q_second);
    } else {
      first[r] = dot(first[r], w_second, q_second);
    }
  }
  BlockSums sums;
  sums.first = sum_rows(first);
  if constexpr (Format::kHalves) sums.second = sum_rows(second);
  return format.step(acc, sums, block, in.d[block]);
}

template <class Format>
inline void gemv(Format& format, const Activations& in, const LinearJob& job) {
  const int whole_blocks = in.n_in / 64;
  for (int row = job.row_begin; row < job.row_end; row += kLanes) {
    format.select(row);
    F32V acc = f32_set1(0.0F);
    for (int block = 0; block < whole_blocks; ++block) acc = gemv_block<true>(format, in, block, acc);
    if (whole_blocks != in.n_blocks) acc = gemv_block<false>(format, in, whole_blocks, acc);
    if constexpr (kPerturbGemv) {
      if (whole_blocks > 1) acc = acc * f32_set1(1.0F + 0x1p-23F);  // K of the canary is smaller
    }
    store_lanes(acc, job, row, format.n_out(), 0);
  }
}

// --- several tokens ---

template <int kTokens, class Format>
inline void token_group(const Format& format, const std::int16_t* packed, const std::int16_t* q, const float* d,
                        int block, float* acc /* [kTokens, kLanes] */) {
  I32V first[kTokens], second[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) first[t] = second[t] = i32_zero();
  dot_packed<kTokens>(packed, q, first);
  dot_packed<kTokens>(packed + 32 * kLanes, q + 32, Format::kHalves ? second : first);
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    float* lanes = acc + t * kLanes;
    f32_store(lanes, format.step(f32_load(lanes), {first[t], second[t]}, block, d[t]));
  }
}

template <bool kWhole, class Format>
inline void pack_block(const Format& format, int block, std::int16_t* packed /* [2, 32, kLanes] */) {
  I16x32 first[kLanes], second[kLanes];
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) format.template decode<kWhole>(r, block, first[r], second[r]);
  pack_rows(first, packed);
  pack_rows(second, packed + 32 * kLanes);
}

template <class Format>
inline void gemm(Format& format, const Activations& in, const LinearJob& job) {
  const int n_rows = in.n_rows;
  const int whole_blocks = in.n_in / 64;
  alignas(64) std::int16_t packed[2 * 32 * kLanes];
  float* acc = job.scratch;  // [n_rows, kLanes]
  for (int row = job.row_begin; row < job.row_end; row += kLanes) {
    format.select(row);
    for (int i = 0; i < n_rows * kLanes; ++i) acc[i] = 0.0F;
    for (int block = 0; block < in.n_blocks; ++block) {
      if (block < whole_blocks) {
        pack_block<true>(format, block, packed);
      } else {
        pack_block<false>(format, block, packed);
      }
      const std::int16_t* q = format.activations(in) + static_cast<std::size_t>(block) * n_rows * 64;
      const float* d = in.d + static_cast<std::size_t>(block) * n_rows;
      int t = 0;
      for (; t + kTokenGroup <= n_rows; t += kTokenGroup) {
        token_group<kTokenGroup>(format, packed, q + 64 * t, d + t, block, acc + t * kLanes);
      }
      for (; t < n_rows; ++t) token_group<1>(format, packed, q + 64 * t, d + t, block, acc + t * kLanes);
    }
    for (int t = 0; t < n_rows; ++t) store_lanes(f32_load(acc + t * kLanes), job, row, format.n_out(), t);
  }
}

template <class Format>
inline void linear(Format&& format, const Activations& in, const LinearJob& job) {
  if (in.n_rows == 1) {
    gemv(format, in, job);
  } else {
    gemm(format, in, job);
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu
