// Linear layers whose blocks of 64 are exact integer sums (docs/contract.md, section 4). Weights are records of 16 rows
// by one block; a tile of 16 rows is one stream of them. A Format knows what a record holds: `sums` of one token, a
// `pack`ed panel for several, and what a sum is worth (`units`, `step`). The loops over tiles, blocks and tokens are
// here, once.
//
//   up to kGemvTokens: two tiles are read at once, a lane is a row, and a record is decoded once for all tokens
//   more tokens:    a block of up to kPanelVectors * kLanes rows becomes a panel in the L1 cache, in which a lane is a
//                   row and holds two elements; registers hold kPanelSums sums of some tokens and some vectors of rows
//
// Both give the same bits because S is exact and every output takes the same fma chain.
#pragma once

namespace nibble::kernels::cpu {
namespace {

static_assert(kPanelVectors * kLanes <= kMaxPanelRows);

// Two streams at this distance read 97 % of what a core can, one stream 84 % (Zen 5, huge pages; without prefetching
// 88 and 76 %, half as far ahead 89 %).
constexpr int kPrefetchBytes = 72 * kLineBytes;

// Sums of one block: of all 64 elements, or of its two halves where these carry scales of their own.
struct BlockSums {
  I32V first, second;
};

// kLanes rows of a record.
struct RecordPart {
  const std::uint8_t* record;
  int tile;
  int row;  // the first of them, in the tile
  int block;

  const std::uint8_t* line(int i) const { return record + kLineBytes * i + 4 * row; }
  // The first reader of lines fetches later ones: all of a short record at once, those of a long one as they are read,
  // because a core waits for a burst of prefetches that is longer than what it can have in flight.
  // always_inline: gcc takes a function that only prefetches for one without effects and drops its calls.
  template <int kCount>
  [[gnu::always_inline]] void prefetch(int first) const {
    if (row != 0) return;
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i) __builtin_prefetch(record + kPrefetchBytes + kLineBytes * (first + i));
  }
};

// Of a Format whose tiles are n_blocks records one after the other.
template <class Format>
inline RecordPart part_of(const Format& format, int row, int block, int n_blocks) {
  const int tile = row / kTileRows;
  const std::size_t at = static_cast<std::size_t>(tile) * n_blocks + block;
  return {format.records() + at * Format::kRecord, tile, row % kTileRows, block};
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

// --- few tokens ---

// The parts of a record from `first` on, kPartsAtOnce of them. acc is [kTokens, parts of a record].
template <int kTokens, class Format>
inline void gemv_parts(const Format& format, const Activations& in, RecordPart first, F32V* acc) {
  constexpr int kParts = kTileRows / kLanes;
  RecordPart parts[kPartsAtOnce];
#pragma GCC unroll 4
  for (int p = 0; p < kPartsAtOnce; ++p) {
    parts[p] = first;
    first.row += kLanes;
  }
  if constexpr (Format::kHasExceptions) {
    if (format.is_exception(first)) {
      for (int p = 0; p < kPartsAtOnce; ++p) {
        float lanes[kTokens * kLanes];
        for (int t = 0; t < kTokens; ++t) f32_store(lanes + t * kLanes, acc[t * kParts + p]);
        format.step_exception(parts[p], in, lanes);
        for (int t = 0; t < kTokens; ++t) acc[t * kParts + p] = f32_load(lanes + t * kLanes);
      }
      return;
    }
  }
  BlockSums sums[kTokens][kPartsAtOnce];
  format.template sums<kTokens>(parts, in, sums);
  const float* d = in.d + static_cast<std::size_t>(first.block) * kTokens;
#pragma GCC unroll 4
  for (int p = 0; p < kPartsAtOnce; ++p) {
    const typename Format::Units units = format.units(parts[p]);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      F32V& lanes = acc[t * kParts + p];
      lanes = format.step(lanes, sums[t][p].first, 0, units, d + t);
      if constexpr (Format::kHalves) lanes = format.step(lanes, sums[t][p].second, 1, units, d + t);
    }
  }
}

template <int kStreams, int kTokens, class Format>
inline void gemv_tiles(const Format& format, const Activations& in, const LinearJob& job, const int* rows) {
  constexpr int kParts = kTileRows / kLanes;
  F32V acc[kStreams][kTokens * kParts];
  const std::uint8_t* records[kStreams];
  for (int s = 0; s < kStreams; ++s) {
    records[s] = part_of(format, rows[s], 0, in.n_blocks).record;
    for (int i = 0; i < kTokens * kParts; ++i) acc[s][i] = f32_set1(0.0F);
  }
  for (int block = 0; block < in.n_blocks; ++block) {
    for (int s = 0; s < kStreams; ++s) {
#pragma GCC unroll 4
      for (int i = 0; i < kParts; i += kPartsAtOnce) {
        gemv_parts<kTokens>(format, in, {records[s], rows[s] / kTileRows, i * kLanes, block}, acc[s] + i);
      }
      records[s] += Format::kRecord;
    }
  }
  for (int s = 0; s < kStreams; ++s) {
    for (int t = 0; t < kTokens; ++t) {
      for (int i = 0; i < kParts && rows[s] + i * kLanes < job.row_end; ++i) {
        const F32V out = perturbed_gemv(acc[s][t * kParts + i], in.n_in / 64);
        store_lanes(out, job, rows[s] + i * kLanes, format.n_out(), t);
      }
    }
  }
}

template <int kTokens, class Format>
inline void gemv(const Format& format, const Activations& in, const LinearJob& job) {
  const int n_tiles = (job.row_end - job.row_begin + kTileRows - 1) / kTileRows;
  const int half = n_tiles / 2;
  for (int tile = 0; tile < half; ++tile) {
    const int rows[2] = {job.row_begin + tile * kTileRows, job.row_begin + (tile + half) * kTileRows};
    gemv_tiles<2, kTokens>(format, in, job, rows);
  }
  if (n_tiles % 2 != 0) {
    const int last = job.row_begin + (n_tiles - 1) * kTileRows;
    gemv_tiles<1, kTokens>(format, in, job, &last);
  }
}

// --- several tokens ---

template <int kVectors, int kTokens, class Format>
inline void token_group(const Format& format, const std::int16_t* panels, const typename Format::Units* units,
                        const std::int16_t* q, const float* d, float* acc /* [kTokens, kVectors, kLanes] */) {
  constexpr int kParts = Format::kHalves ? 2 : 1;  // one after the other, so that registers hold the sums of one
#pragma GCC unroll 2
  for (int part = 0; part < kParts; ++part) {
    I32V sums[kTokens][kVectors];
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[t][v] = i32_zero();
    }
    dot_panels<32 / kParts>(panels + part * 32 * kLanes, q + 32 * part, sums);
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        float* lanes = acc + (t * kVectors + v) * kLanes;
        f32_store(lanes, format.step(f32_load(lanes), sums[t][v], part, units[v], d + t));
      }
    }
  }
}

// One block of kVectors * kLanes rows for all tokens.
template <int kVectors, class Format>
inline void gemm_block(const Format& format, const Activations& in, int row, int block, std::int16_t* panels,
                       float* acc) {
  typename Format::Units units[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const auto part = format.part(row + v * kLanes, block);
    if constexpr (Format::kHasExceptions) {  // with kVectors = 1
      if (format.is_exception(part)) return format.step_exception(part, in, acc);
    }
    format.pack(part, panels + v * kPanelSize);
    units[v] = format.units(part);
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
inline void gemm_panel(const Format& format, const Activations& in, const LinearJob& job, int row,
                       std::int16_t* panels) {
  constexpr int kWidth = kVectors * kLanes;
  float* acc = job.scratch;  // [n_rows, kVectors, kLanes]
  for (int i = 0; i < in.n_rows * kWidth; ++i) acc[i] = 0.0F;
  for (int block = 0; block < in.n_blocks; ++block) gemm_block<kVectors>(format, in, row, block, panels, acc);
  for (int t = 0; t < in.n_rows; ++t) {
    for (int v = 0; v < kVectors && row + v * kLanes < job.row_end; ++v) {
      store_lanes(f32_load(acc + (t * kVectors + v) * kLanes), job, row + v * kLanes, format.n_out(), t);
    }
  }
}

template <class Format>
inline void gemm(const Format& format, const Activations& in, const LinearJob& job) {
  alignas(64) std::int16_t panels[kPanelVectors * kPanelSize];
  int row = job.row_begin;
  if constexpr (!Format::kHasExceptions) {
    for (; row + (kPanelVectors - 1) * kLanes < job.row_end; row += kPanelVectors * kLanes) {
      gemm_panel<kPanelVectors>(format, in, job, row, panels);
    }
    if constexpr (kPanelVectors > 2) {
      for (; row + kLanes < job.row_end; row += 2 * kLanes) gemm_panel<2>(format, in, job, row, panels);
    }
  }
  for (; row < job.row_end; row += kLanes) gemm_panel<1>(format, in, job, row, panels);
}

template <int kTokens, class Format>
inline void linear_of_few(const Format& format, const Activations& in, const LinearJob& job) {
  if (in.n_rows == kTokens) return gemv<kTokens>(format, in, job);
  if constexpr (kTokens > 1) linear_of_few<kTokens - 1>(format, in, job);
}

template <class Format>
inline void linear(const Format& format, const Activations& in, const LinearJob& job) {
  static_assert(kGemvTokens <= kMaxGemvTokens);
  if (in.n_rows <= kGemvTokens) {
    linear_of_few<kGemvTokens>(format, in, job);
  } else {
    gemm(format, in, job);
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu
