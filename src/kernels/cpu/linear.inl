// Linear layers whose blocks of 64 are exact integer sums (docs/contract.md, section 4). Weights are records of 16 rows
// by one block; a tile of 16 rows is one stream of them. A Format knows what a record holds: `sums` of one token, a
// `pack`ed panel for several, and what a sum is worth (`units`, `step`). The loops over tiles, blocks and tokens are
// here, once.
//
//   up to kGemvTokens: two tiles are read at once, a lane is a row, and a record is decoded once for all tokens
//   more tokens:    some blocks of kPanelVectors * kLanes rows become panels in the L1 cache, in which a lane is a row
//                   and holds two elements; registers hold the sums of kPanelTokens tokens and kPanelVectors vectors
//
// Both give the same bits because S is exact and every output takes the same fma chain. A step of that chain covers a
// block; of a Format with kBlocksPerStep > 1 a super-block, whose sum is held in an int32 until its last block.
#pragma once

namespace nibble::kernels::cpu {
namespace {

static_assert(kGemmRows % (kPanelVectors * kLanes) == 0);

// Two streams at this distance read 97 % of what a core can, one stream 84 % (Zen 5, huge pages; without prefetching
// 88 and 76 %, half as far ahead 89 %).
constexpr int kPrefetchBytes = 72 * kLineBytes;

// In code that is there once for each stream: it keeps the compiler from merging the copies. A core's prefetcher tells
// streams by their load instructions. Through the same instructions two streams look like one with strides of the
// distance between them, and unless that is a multiple of 16 KB a core reads 30 GB/s instead of 40 (Zen 5).
template <int kStream>
[[gnu::always_inline]] inline void keep_apart() {
  __asm__ volatile("" ::"i"(kStream));
}

// Sums of one block: of all 64 elements, or of its two halves where these carry scales of their own, or of what int16
// hold of the weights and of the rest.
struct BlockSums {
  I32V first, second;
};

// What most Formats have in common.
struct FormatOfBlocks {
  static constexpr int kBlocksPerStep = 1;
  static constexpr bool kHalves = false;         // a block is two blocks of weights, a step each
  static constexpr bool kHasExceptions = false;  // blocks that are summed otherwise
  static constexpr bool kHasRest = false;        // a sum has a second part, which the int16 of a panel leave out
  static F32V finish(F32V acc) { return acc; }   // an output, before its bias

  // sums[t][v] += panel v times the block `at` + t of activations, both whole or of kParts equal parts this one.
  template <int kParts, int kVectors, int kTokens>
  static void dot(const std::int16_t* panels, int part, const Activations& in, std::size_t at,
                  I32V (&sums)[kTokens][kVectors]) {
    dot_panels<32 / kParts>(panels + part * 32 * kLanes, in.q + 64 * at + 32 * part, sums);
  }
};

template <class Format>
inline bool starts_step(int block) {
  return Format::kBlocksPerStep == 1 || block % Format::kBlocksPerStep == 0;
}
template <class Format>
inline bool ends_step(int block, int n_blocks) {
  return Format::kBlocksPerStep == 1 || (block + 1) % Format::kBlocksPerStep == 0 || block + 1 == n_blocks;
}

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

// The parts of a record from `first` on, kPartsAtOnce of them. acc and held are [kTokens, parts of a record].
template <int kTokens, int kStream, class Format>
inline void gemv_parts(const Format& format, const Activations& in, RecordPart first, F32V* acc, I32V* held) {
  constexpr int kParts = kTileRows / kLanes;
  RecordPart parts[kPartsAtOnce];
#pragma GCC unroll 4
  for (int p = 0; p < kPartsAtOnce; ++p) {
    parts[p] = first;
    first.row += kLanes;
  }
  if constexpr (Format::kHasExceptions) {
    if (format.is_exception(first)) {
      if (!ends_step<Format>(first.block, in.n_blocks)) return;
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
  format.template sums<kTokens, kStream>(parts, in, sums);
  if constexpr (Format::kBlocksPerStep > 1) {
    const bool is_first = starts_step<Format>(first.block), is_last = ends_step<Format>(first.block, in.n_blocks);
#pragma GCC unroll 4
    for (int p = 0; p < kPartsAtOnce; ++p) {
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        I32V& sum = sums[t][p].first;
        if (!is_first) sum = sum + held[t * kParts + p];
        if (!is_last) held[t * kParts + p] = sum;
      }
    }
    if (!is_last) return;
  }
  const float* d = in.d + static_cast<std::size_t>(first.block) * kTokens;
#pragma GCC unroll 4
  for (int p = 0; p < kPartsAtOnce; ++p) {
    const typename Format::Units units = format.units(parts[p]);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      F32V& lanes = acc[t * kParts + p];
      if constexpr (Format::kHasRest) {
        lanes = format.step_with_rest(lanes, sums[t][p].first, sums[t][p].second, units, d + t);
        continue;
      }
      lanes = format.step(lanes, sums[t][p].first, 0, units, d + t);
      if constexpr (Format::kHalves) lanes = format.step(lanes, sums[t][p].second, 1, units, d + t);
    }
  }
}

template <int kTokens, int kStream, class Format>
inline void gemv_record(const Format& format, const Activations& in, RecordPart part, F32V* acc, I32V* held) {
#pragma GCC unroll 4
  for (int i = 0; i < kTileRows / kLanes; i += kPartsAtOnce) {
    gemv_parts<kTokens, kStream>(format, in, part, acc + i, held + i);
    part.row += kPartsAtOnce * kLanes;
  }
}

template <int kStreams, int kTokens, class Format>
inline void gemv_tiles(const Format& format, const Activations& in, const LinearJob& job, const int* rows) {
  static_assert(kStreams <= 2);
  constexpr int kParts = kTileRows / kLanes;
  F32V acc[kStreams][kTokens * kParts];
  I32V held[kStreams][kTokens * kParts];
  const std::uint8_t* records[kStreams];
  for (int s = 0; s < kStreams; ++s) {
    records[s] = part_of(format, rows[s], 0, in.n_blocks).record;
    for (int i = 0; i < kTokens * kParts; ++i) acc[s][i] = f32_set1(0.0F);
  }
  for (int block = 0; block < in.n_blocks; ++block) {
    gemv_record<kTokens, 0>(format, in, {records[0], rows[0] / kTileRows, 0, block}, acc[0], held[0]);
    records[0] += Format::kRecord;
    if constexpr (kStreams == 2) {
      gemv_record<kTokens, 1>(format, in, {records[1], rows[1] / kTileRows, 0, block}, acc[1], held[1]);
      records[1] += Format::kRecord;
    }
  }
  for (int s = 0; s < kStreams; ++s) {
    for (int t = 0; t < kTokens; ++t) {
      for (int i = 0; i < kParts && rows[s] + i * kLanes < job.row_end; ++i) {
        const F32V out = perturbed_gemv(acc[s][t * kParts + i], in.n_in / 64);
        store_lanes(Format::finish(out), job, rows[s] + i * kLanes, format.n_out(), t);
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

// Blocks of K that meet a group of tokens one after the other: few enough for their panels, the activations and the
// next records in an L1 cache (with 8, 5 to 16 tokens lose 10 %), and for the activations of 512 tokens in an L2 cache.
constexpr int kChunkBlocks = 4;  // a step, or several: where a chunk ends before, an exception starts a step

// What panels leave out of the weights, of the pairs of elements that have any.
template <bool kHasRest, int kVectors>
struct PanelRest {};
template <int kVectors>
struct PanelRest<true, kVectors> {
  alignas(64) std::int32_t words[kChunkBlocks][32][kVectors * kLanes];  // pairs of int16 of each row, if in the mask
  std::uint32_t pairs[kChunkBlocks];                                    // a mask of 32

  void add(int b, int pair, int v, I32V rest) {
    std::int32_t* to = words[b][pair];
    const std::uint32_t bit = std::uint32_t{1} << pair;
    if ((pairs[b] & bit) == 0) {
      for (int other = 0; other < kVectors; ++other) i32_store(to + other * kLanes, i32_zero());
    }
    pairs[b] |= bit;
    i32_store(to + v * kLanes, rest);
  }
  // Of block b and n_tokens tokens, whose integers are q: [n_tokens, kVectors, kLanes].
  [[gnu::noinline]] void sums(int b, const std::int16_t* q, int n_tokens, std::int32_t* out) const {
    for (int t = 0; t < n_tokens; ++t, q += 64) {
      for (int v = 0; v < kVectors; ++v, out += kLanes) {
        I32V sum = i32_zero();
        for (std::uint32_t left = pairs[b]; left != 0; left &= left - 1) {
          const int pair = __builtin_ctz(left);
          sum = pair_dot(sum, i32_load_pairs(words[b][pair] + v * kLanes), pair_set1(q + 2 * pair));
        }
        i32_store(out, sum);
      }
    }
  }
};

// kVectors * kLanes rows of `n` blocks.
template <int kVectors, class Format>
struct PanelChunk {
  alignas(64) std::int16_t panels[kChunkBlocks][kVectors * kPanelSize];
  typename Format::Units units[kChunkBlocks][kVectors];
  PanelRest<Format::kHasRest, kVectors> rest;
  int first;
  int n;
};

// A chunk for kTokens tokens from t on. Accumulators are read and written once for all of its blocks; AVX-512 keeps
// them in registers beside the sums.
template <int kTokens, int kVectors, class Format>
[[gnu::noinline]] void gemm_group(const Format& format, const PanelChunk<kVectors, Format>& chunk,
                                  const Activations& in, int t, float* to /* [kTokens, kVectors, kLanes] */) {
  constexpr int kParts = Format::kHalves ? 2 : 1;  // one after the other, so that registers hold the sums of one
  F32V acc[kTokens][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kTokens; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc[i][v] = f32_load(to + (i * kVectors + v) * kLanes);
  }
  I32V sums[kTokens][kVectors];
  for (int b = 0; b < chunk.n; ++b) {
    const std::size_t at = static_cast<std::size_t>(chunk.first + b) * in.n_rows + t;
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
      if (starts_step<Format>(b)) {  // as a chunk starts with one
#pragma GCC unroll 16
        for (int i = 0; i < kTokens; ++i) {
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) sums[i][v] = i32_zero();
        }
      }
      Format::template dot<kParts>(chunk.panels[b], part, in, at, sums);
      if (!ends_step<Format>(chunk.first + b, in.n_blocks)) continue;
      if constexpr (Format::kHasRest) {
        if (chunk.rest.pairs[b] != 0) {
          std::int32_t rest[kTokens * kVectors * kLanes];
          chunk.rest.sums(b, in.q + 64 * at, kTokens, rest);
#pragma GCC unroll 16
          for (int i = 0; i < kTokens; ++i) {
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) {
              acc[i][v] =
                  format.step_with_rest(acc[i][v], sums[i][v], i32_load_pairs(rest + (i * kVectors + v) * kLanes),
                                        chunk.units[b][v], in.d + at + i);
            }
          }
          continue;
        }
      }
#pragma GCC unroll 16
      for (int i = 0; i < kTokens; ++i) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          acc[i][v] = format.step(acc[i][v], sums[i][v], part, chunk.units[b][v], in.d + at + i);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kTokens; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) f32_store(to + (i * kVectors + v) * kLanes, acc[i][v]);
  }
}

template <int kTokens, int kVectors, class Format>
inline void gemm_group_of(int n_tokens, const Format& format, const PanelChunk<kVectors, Format>& chunk,
                          const Activations& in, int t, float* acc) {
  // The least that groups of even size come to, for more tokens than gemv takes.
  constexpr int kFewest = kGemvTokens + 1 < (kPanelTokens + 1) / 2 ? kGemvTokens + 1 : (kPanelTokens + 1) / 2;
  if (n_tokens == kTokens) return gemm_group<kTokens>(format, chunk, in, t, acc);
  if constexpr (kTokens > kFewest) gemm_group_of<kTokens - 1>(n_tokens, format, chunk, in, t, acc);
}

// All tokens in groups of even size. acc is [n_rows, kVectors, kLanes].
template <int kVectors, class Format>
inline void gemm_chunk(const Format& format, const PanelChunk<kVectors, Format>& chunk, const Activations& in,
                       float* acc) {
  const int n_groups = (in.n_rows + kPanelTokens - 1) / kPanelTokens;
  const int n_tokens = in.n_rows / n_groups, n_larger = in.n_rows % n_groups;
  for (int group = 0, t = 0; group < n_groups; ++group) {
    const int n = n_tokens + (group < n_larger ? 1 : 0);
    gemm_group_of<kPanelTokens>(n, format, chunk, in, t, acc + static_cast<std::size_t>(t) * kVectors * kLanes);
    t += n;
  }
}

// Blocks from `block` on as panels: a chunk of them, or as many as there are before a block that is an exception.
template <int kVectors, class Format>
inline void pack_chunk(const Format& format, int row, int block, int n_blocks, PanelChunk<kVectors, Format>& chunk) {
  chunk.first = block;
  chunk.n = 0;
  for (; chunk.n < kChunkBlocks && block < n_blocks; ++chunk.n, ++block) {
    if constexpr (Format::kHasRest) chunk.rest.pairs[chunk.n] = 0;
    for (int v = 0; v < kVectors; ++v) {
      const auto part = format.part(row + v * kLanes, block);
      if constexpr (Format::kHasExceptions) {  // with kVectors = 1
        if (format.is_exception(part)) return;
      }
      std::int16_t* const panel = chunk.panels[chunk.n] + v * kPanelSize;
      if constexpr (Format::kHasRest) {
        format.pack(part, panel, chunk.rest, chunk.n, v);
      } else {
        format.pack(part, panel);
      }
      chunk.units[chunk.n][v] = format.units(part);
    }
  }
}

// n_panels times kVectors * kLanes rows. While a chunk of activations lies in the L2 cache, all of the rows meet it.
template <int kVectors, class Format>
inline void gemm_rows(const Format& format, const Activations& in, const LinearJob& job, int row, int n_panels) {
  constexpr int kWidth = kVectors * kLanes;
  const std::size_t panel_values = static_cast<std::size_t>(in.n_rows) * kWidth;
  float* const acc = job.scratch;  // [n_panels, n_rows, kVectors, kLanes]
  for (std::size_t i = 0; i < n_panels * panel_values; ++i) acc[i] = 0.0F;
  PanelChunk<kVectors, Format> chunk;
  for (int block = 0; block < in.n_blocks;) {
    for (int p = 0; p < n_panels; ++p) {
      pack_chunk(format, row + p * kWidth, block, in.n_blocks, chunk);
      gemm_chunk(format, chunk, in, acc + p * panel_values);
    }
    block += chunk.n;
    if constexpr (Format::kHasExceptions) {  // with n_panels = 1
      if (chunk.n < kChunkBlocks && block < in.n_blocks) {
        if (ends_step<Format>(block, in.n_blocks)) format.step_exception(format.part(row, block), in, acc);
        ++block;
      }
    }
  }
  for (int t = 0; t < in.n_rows; ++t) {
    for (int p = 0; p < n_panels; ++p) {
      for (int v = 0; v < kVectors && row + p * kWidth + v * kLanes < job.row_end; ++v) {
        const float* lanes = acc + p * panel_values + (t * kVectors + v) * kLanes;
        store_lanes(Format::finish(f32_load(lanes)), job, row + p * kWidth + v * kLanes, format.n_out(), t);
      }
    }
  }
}

template <class Format>
inline void gemm(const Format& format, const Activations& in, const LinearJob& job) {
  constexpr int kWidth = kPanelVectors * kLanes;
  int row = job.row_begin;
  if constexpr (!Format::kHasExceptions) {
    while (row + kWidth - kLanes < job.row_end) {
      const int n_panels = (job.row_end - row + kLanes - 1) / kWidth;
      const int n = n_panels < kGemmRows / kWidth ? n_panels : kGemmRows / kWidth;
      gemm_rows<kPanelVectors>(format, in, job, row, n);
      row += n * kWidth;
    }
  }
  for (; row < job.row_end; row += kLanes) gemm_rows<1>(format, in, job, row, 1);
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
