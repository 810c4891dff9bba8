// Linear layers whose blocks of 64 are exact integer sums (docs/contract.md, section 4). A Format knows how a block of
// rows becomes int16 and what a sum is worth; the loops over rows, blocks and tokens are here, once.
//
//   one token:      kLanes rows in flight, each row's partial sums stay in a register; sum_rows turns them into lanes
//   several tokens: a block of up to kPanelVectors * kLanes rows becomes a panel in the L1 cache, in which a lane is a
//                   row and holds two elements; registers hold kPanelSums sums of some tokens and some vectors of rows
//
// Both give the same bits because S is exact and every output takes the same fma chain.
#pragma once

namespace nibble::kernels::cpu {
namespace {

static_assert(kPanelVectors * kLanes <= kMaxPanelRows);

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
  if (job.bias == nullptr && row + kLanes <= job.row_end) {
    f32_store(out, acc);
    return;
  }
  float lanes[kLanes];
  f32_store(lanes, acc);
  for (int r = 0; r < kLanes && row + r < job.row_end; ++r) {
    out[r] = job.bias != nullptr ? lanes[r] + job.bias[row + r] : lanes[r];
  }
}

// --- one token ---

template <bool kWhole, class Format>
inline F32V gemv_block(const Format& format, const Activations& in, int block, F32V acc) {
  const std::int16_t* q = in.q + static_cast<std::size_t>(block) * 64;
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
  return format.step(acc, sums, format.units(0, block), in.d + block);
}

template <class Format>
inline void gemv_rows(Format& format, const Activations& in, const LinearJob& job) {
  const int whole_blocks = in.n_in / 64;
  for (int row = job.row_begin; row < job.row_end; row += kLanes) {
    format.select(row, 1);
    F32V acc = f32_set1(0.0F);
    for (int block = 0; block < whole_blocks; ++block) acc = gemv_block<true>(format, in, block, acc);
    if (whole_blocks != in.n_blocks) acc = gemv_block<false>(format, in, whole_blocks, acc);
    store_lanes(perturbed_gemv(acc, whole_blocks), job, row, format.n_out(), 0);
  }
}

// --- several tokens ---

template <int kVectors, int kTokens, class Format>
inline void token_group(const Format& format, const std::int16_t* panels, const typename Format::Units* units,
                        const std::int16_t* q, const float* d, float* acc /* [kTokens, kVectors, kLanes] */) {
  I32V first[kTokens][kVectors], second[kTokens][kVectors];
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) first[t][v] = second[t][v] = i32_zero();
  }
  if constexpr (Format::kHalves) {
    dot_panels<16>(panels, q, first);
    dot_panels<16>(panels + 32 * kLanes, q + 32, second);
  } else {
    dot_panels<32>(panels, q, first);
  }
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* lanes = acc + (t * kVectors + v) * kLanes;
      f32_store(lanes, format.step(f32_load(lanes), {first[t][v], second[t][v]}, units[v], d + t));
    }
  }
}

// One block of kVectors * kLanes rows for all tokens.
template <int kVectors, class Format>
inline void gemm_block(const Format& format, const Activations& in, int block, std::int16_t* panels, float* acc) {
  typename Format::Units units[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    format.pack(v, block, panels + v * kPanelSize);
    units[v] = format.units(v, block);
  }
  const std::int16_t* q = in.q + static_cast<std::size_t>(block) * in.n_rows * 64;
  const float* d = in.d + static_cast<std::size_t>(block) * in.n_rows;
  constexpr int kTokens = kPanelSums / kVectors;
  constexpr int kWidth = kVectors * kLanes;
  int t = 0;
  for (; t + kTokens <= in.n_rows; t += kTokens) {
    token_group<kVectors, kTokens>(format, panels, units, q + 64 * t, d + t, acc + t * kWidth);
  }
  for (; t + 2 <= in.n_rows; t += 2) {
    token_group<kVectors, 2>(format, panels, units, q + 64 * t, d + t, acc + t * kWidth);
  }
  for (; t < in.n_rows; ++t) {
    token_group<kVectors, 1>(format, panels, units, q + 64 * t, d + t, acc + t * kWidth);
  }
}

template <int kVectors, class Format>
inline void gemm_panel(Format& format, const Activations& in, const LinearJob& job, int row, std::int16_t* panels) {
  constexpr int kWidth = kVectors * kLanes;
  float* acc = job.scratch;  // [n_rows, kVectors, kLanes]
  format.select(row, kVectors);
  for (int i = 0; i < in.n_rows * kWidth; ++i) acc[i] = 0.0F;
  for (int block = 0; block < in.n_blocks; ++block) gemm_block<kVectors>(format, in, block, panels, acc);
  for (int t = 0; t < in.n_rows; ++t) {
    for (int v = 0; v < kVectors && row + v * kLanes < job.row_end; ++v) {
      store_lanes(f32_load(acc + (t * kVectors + v) * kLanes), job, row + v * kLanes, format.n_out(), t);
    }
  }
}

template <class Format>
inline void gemm(Format& format, const Activations& in, const LinearJob& job) {
  alignas(64) std::int16_t panels[kPanelVectors * kPanelSize];
  int row = job.row_begin;
  for (; row + (kPanelVectors - 1) * kLanes < job.row_end; row += kPanelVectors * kLanes) {
    gemm_panel<kPanelVectors>(format, in, job, row, panels);
  }
  if constexpr (kPanelVectors > 2) {
    for (; row + kLanes < job.row_end; row += 2 * kLanes) gemm_panel<2>(format, in, job, row, panels);
  }
  for (; row < job.row_end; row += kLanes) gemm_panel<1>(format, in, job, row, panels);
}

// pack() of formats that decode rows.
template <class Format>
inline void pack_decoded_rows(const Format& format, int vector, int block, bool is_whole, std::int16_t* panel) {
  I16x32 first[kLanes], second[kLanes];
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) {
    if (is_whole) {
      format.template decode<true>(vector * kLanes + r, block, first[r], second[r]);
    } else {
      format.template decode<false>(vector * kLanes + r, block, first[r], second[r]);
    }
  }
  pack_rows(first, panel);
  pack_rows(second, panel + 32 * kLanes);
}

template <class Format>
inline void linear(Format&& format, const Activations& in, const LinearJob& job) {
  if (in.n_rows == 1) {
    gemv_rows(format, in, job);
  } else {
    gemm(format, in, job);
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu
