// Block-quantized weights of GGUF from records (quant_layout.h), by section 12 of the contract.
//
//   one token:      codes meet two planes of 8 bits in byte dot products, and the sums of each group its integer scale
//   several tokens: (code - offset) * scale is a panel of int16, as with NVFP4
//
// What a minimum is multiplied with, the sums of activations over groups, is made once per input (sum_groups).
#pragma once

namespace nibble::kernels::cpu {
namespace {

// A line of a record as kLanes words. The arithmetic of the compiler's vectors is the same on every instruction set.
typedef std::uint32_t WordV __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t IntV __attribute__((vector_size(4 * kLanes)));
typedef std::int16_t ShortV __attribute__((vector_size(4 * kLanes)));

template <class To, class From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
inline WordV load_line(const std::uint8_t* p) {
  WordV line;
  __builtin_memcpy(&line, p, sizeof line);
  return line;
}

void sum_groups(const std::int16_t* q, int n_blocks, std::size_t stride, std::int16_t* sums) {
  for (int block = 0; block < n_blocks; ++block) {
    for (int g = 0; g < 4; ++g) {
      int sum = 0;
      for (int i = 0; i < 16; ++i) sum += q[16 * g + i];
      sums[g] = static_cast<std::int16_t>(sum);
    }
    sums[4] = static_cast<std::int16_t>(sums[0] + sums[1]);
    sums[5] = static_cast<std::int16_t>(sums[2] + sums[3]);
    q += stride;
    sums += stride / 64 * kSumsPerBlock;
  }
}

// --- records ---

// Quads t and t + 8 of kLanes rows, a code in each byte.
struct TwoQuads {
  WordV first, second;
};
template <QuantLayout kLayout>
inline TwoQuads load_quads(const std::uint8_t* record, int t) {
  constexpr int kLow = kLayout.low_bits(), kHigh = kLayout.high_bits();
  constexpr std::uint32_t kLowMask = 0x01010101U * ((1U << kLow) - 1);
  const WordV line = load_line(record + (kLow == 4 ? t : t / 2) * kLineBytes);
  const int at = kLow == 4 ? 0 : t % 2 * 4;
  TwoQuads out{line >> at & kLowMask, line >> (at + kLow) & kLowMask};
  if constexpr (kHigh != 0) {
    constexpr std::uint32_t kHighMask = 0x01010101U * (((1U << kHigh) - 1) << kLow);
    const WordV high = load_line(record + kLayout.high_at() + (kHigh == 2 ? t / 2 : t / 4) * kLineBytes);
    const int from = kHigh == 2 ? t % 2 * 4 : t % 4 * 2;  // where its bits are, which belong at kLow
    const WordV first = from <= kLow ? high << (kLow - from) : high >> (from - kLow);
    const int second_from = from + kHigh;
    const WordV second = second_from <= kLow ? high << (kLow - second_from) : high >> (second_from - kLow);
    out.first |= first & kHighMask;
    out.second |= second & kHighMask;
  }
  return out;
}

// The integers of a super-block's groups: pairs of groups 0, 1 and 2, 3 as int16.
template <QuantLayout kLayout>
inline ShortV scale_pair(const std::uint8_t* record, int pair) {
  const WordV line = load_line(record + kLayout.scales_at());
  if constexpr (kLayout.group == 32) return bits_as<ShortV>(line & 0x00FF00FFU);
  if constexpr (kLayout.has_minimum) return bits_as<ShortV>((pair == 0 ? line : line >> 8) & 0x000F000FU);
  const ShortV bytes = bits_as<ShortV>(line);  // two signed bytes each
  return (pair == 0 ? bytes << 8 : bytes) >> 8;
}
inline IntV low_of_pair(ShortV pair) {
  return bits_as<IntV>(bits_as<WordV>(pair) << 16) >> 16;
}
inline IntV high_of_pair(ShortV pair) {
  return bits_as<IntV>(pair) >> 16;
}

// --- what a block is worth ---

// What the arithmetic of a type depends on; types that agree in it share the code below.
struct QuantKind {
  int group;
  bool is_super;
  bool has_minimum;
};
constexpr QuantKind kind_of(const QuantLayout& layout) {
  return {layout.group, layout.is_super, layout.has_minimum};
}

// d and -m of super-blocks; d and m of both blocks of 32.
template <QuantKind kKind>
struct QuantUnits {
  F32V d[kKind.is_super ? 1 : 2], m[kKind.is_super ? 1 : 2];
  I32V minimum[kKind.group == 32 ? 1 : 2];  // pairs of groups as int16
};
// Of the rows from `lane` on. `records` are those of the tile.
template <QuantKind kKind>
inline QuantUnits<kKind> load_units(const QuantLayout& layout, const std::uint8_t* records, int block, int lane) {
  const std::uint8_t* line = records + layout.record_at(block) + layout.scales_at();
  QuantUnits<kKind> out;
  if constexpr (kKind.is_super) {
    const auto* scales = reinterpret_cast<const std::uint16_t*>(records + layout.super_scales_at(block)) + lane;
    out.d[0] = f32_load_f16(scales);
    if constexpr (kKind.has_minimum) {
      out.m[0] = f32_load_f16(scales + kTileRows) * f32_set1(-1.0F);
      const WordV integers = load_line(line + 4 * lane);
      if constexpr (kKind.group == 32) {
        out.minimum[0] = bits_as<I32V>(integers >> 8 & 0x00FF00FFU);
      } else {
        out.minimum[0] = bits_as<I32V>(integers >> 4 & 0x000F000FU);
        out.minimum[1] = bits_as<I32V>(integers >> 12 & 0x000F000FU);
      }
    }
  } else {
    const auto* scales = reinterpret_cast<const std::uint16_t*>(line) + lane;
    for (int half = 0; half < 2; ++half) {
      out.d[half] = f32_load_f16(scales + half * kTileRows);
      if constexpr (kKind.has_minimum) out.m[half] = f32_load_f16(scales + (2 + half) * kTileRows);
    }
  }
  return out;
}

template <QuantKind kKind>
inline F32V quant_step(F32V acc, const BlockSums& s, const QuantUnits<kKind>& units, float d,
                       const std::int16_t* sums) {
  const F32V dx = f32_set1(d);
  acc = f32_fma(f32_from(s.first), dx * units.d[0], acc);
  if constexpr (kKind.is_super && kKind.has_minimum) {
    I32V minimums = i32_zero();
    if constexpr (kKind.group == 32) {
      minimums = pair_dot(minimums, units.minimum[0], pair_set1(sums + 4));
    } else {
      minimums = pair_dot(minimums, units.minimum[0], pair_set1(sums));
      minimums = pair_dot(minimums, units.minimum[1], pair_set1(sums + 2));
    }
    acc = f32_fma(f32_from(minimums), dx * units.m[0], acc);
  }
  if constexpr (!kKind.is_super) {
    if constexpr (kKind.has_minimum) acc = f32_fma(f32_set1(static_cast<float>(sums[4])), dx * units.m[0], acc);
    acc = f32_fma(f32_from(s.second), dx * units.d[1], acc);
    if constexpr (kKind.has_minimum) acc = f32_fma(f32_set1(static_cast<float>(sums[5])), dx * units.m[1], acc);
  }
  return acc;
}

// --- one token ---

// The sums of kLanes rows over a block.
template <QuantLayout kLayout>
inline BlockSums plane_sums(const std::uint8_t* record, const PlaneBlock& in, const std::int16_t* sums) {
  constexpr int kGroups = 64 / kLayout.group;
  I32V high[kGroups], low[kGroups];
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) {
    high[g] = i32_zero();
    // What the offset of the codes adds is taken away at the start.
    low[g] = i32_set1(-kLayout.offset * sums[kGroups == 4 ? g : 4 + g]);
  }
#pragma GCC unroll 8
  for (int t = 0; t < 8; ++t) {
    const TwoQuads w = load_quads<kLayout>(record, t);
    const int g = 4 * t / kLayout.group, at = 4 * t;
    high[g] = quad_dot(high[g], bits_as<I32V>(w.first), in.high + at);
    low[g] = quad_dot(low[g], bits_as<I32V>(w.first), in.low + at);
    const int g2 = g + kGroups / 2;
    high[g2] = quad_dot(high[g2], bits_as<I32V>(w.second), in.high + 32 + at);
    low[g2] = quad_dot(low[g2], bits_as<I32V>(w.second), in.low + 32 + at);
  }
  IntV sum[kGroups];
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) sum[g] = bits_as<IntV>(i32_times_8(high[g]) + low[g]);
  if constexpr (!kLayout.is_super) {
    return {bits_as<I32V>(sum[0]), bits_as<I32V>(sum[1])};
  } else {
    IntV total = {};
#pragma GCC unroll 2
    for (int pair = 0; pair < kGroups / 2; ++pair) {
      const ShortV scales = scale_pair<kLayout>(record, pair);
      total += low_of_pair(scales) * sum[2 * pair] + high_of_pair(scales) * sum[2 * pair + 1];
    }
    return {bits_as<I32V>(total), i32_zero()};
  }
}

template <QuantLayout kLayout, int kStreams>
inline void gemv_quant_tiles(const QuantWeights& w, const Activations& in, const LinearJob& job, const int* rows) {
  constexpr int kParts = kTileRows / kLanes;
  constexpr int kRecord = kLayout.record_bytes();
  F32V acc[kStreams][kParts];
  const std::uint8_t* records[kStreams];
  for (int s = 0; s < kStreams; ++s) {
    records[s] = w.records + static_cast<std::size_t>(rows[s] / kTileRows) * kLayout.tile_bytes(in.n_blocks);
    for (int part = 0; part < kParts; ++part) acc[s][part] = f32_set1(0.0F);
  }
  for (int block = 0; block < in.n_blocks; ++block) {
    const std::int16_t* sums = in.sums + static_cast<std::size_t>(block) * kSumsPerBlock;
    for (int s = 0; s < kStreams; ++s) {
      const std::uint8_t* record = records[s] + kLayout.record_at(block);
#pragma GCC unroll 16
      for (int i = 0; i < kRecord; i += kLineBytes) __builtin_prefetch(record + 8 * kRecord + i);
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        const int lane = part * kLanes;
        const BlockSums block_sums = plane_sums<kLayout>(record + 4 * lane, in.planes[block], sums);
        const auto units = load_units<kind_of(kLayout)>(kLayout, records[s], block, lane);
        acc[s][part] = quant_step<kind_of(kLayout)>(acc[s][part], block_sums, units, in.d[block], sums);
      }
    }
  }
  for (int s = 0; s < kStreams; ++s) {
    for (int part = 0; part < kParts && rows[s] + part * kLanes < job.row_end; ++part) {
      store_lanes(perturbed_gemv(acc[s][part], in.n_in / 64), job, rows[s] + part * kLanes, w.n_out, 0);
    }
  }
}

template <QuantLayout kLayout>
inline void gemv_quant(const QuantWeights& w, const Activations& in, const LinearJob& job) {
  const int n_tiles = (job.row_end - job.row_begin + kTileRows - 1) / kTileRows;
  const int half = n_tiles / 2;
  for (int tile = 0; tile < half; ++tile) {
    const int rows[2] = {job.row_begin + tile * kTileRows, job.row_begin + (tile + half) * kTileRows};
    gemv_quant_tiles<kLayout, 2>(w, in, job, rows);
  }
  if (n_tiles % 2 != 0) {
    const int last = job.row_begin + (n_tiles - 1) * kTileRows;
    gemv_quant_tiles<kLayout, 1>(w, in, job, &last);
  }
}

// --- several tokens ---

// Quad t of a panel. Even bytes are elements 0 and 1 of it, odd ones 2 and 3 (kQuadOrder).
template <QuantLayout kLayout>
inline void pack_quad(const std::uint8_t* record, int t, WordV quad, std::int16_t* panel) {
  ShortV words[2] = {bits_as<ShortV>(quad & 0x00FF00FFU), bits_as<ShortV>(quad >> 8 & 0x00FF00FFU)};
  for (int i = 0; i < 2; ++i) {
    words[i] -= static_cast<std::int16_t>(kLayout.offset);
    if constexpr (kLayout.is_super) {
      const int g = 4 * t / kLayout.group;
      const WordV pair = bits_as<WordV>(scale_pair<kLayout>(record, g / 2));
      const WordV scale = g % 2 == 0 ? pair & 0xFFFFU : pair >> 16;
      words[i] *= bits_as<ShortV>(scale | scale << 16);
    }
    store_pairs(panel, 2 * t + i, bits_as<I32V>(words[i]));
  }
}

// A block of kLanes rows as a panel.
using PackRecord = void (*)(const std::uint8_t* record, std::int16_t* panel);
template <QuantLayout kLayout>
void pack_record(const std::uint8_t* record, std::int16_t* panel) {
#pragma GCC unroll 8
  for (int t = 0; t < 8; ++t) {
    const TwoQuads w = load_quads<kLayout>(record, t);
    pack_quad<kLayout>(record, t, w.first, panel);
    pack_quad<kLayout>(record, t + 8, w.second, panel);
  }
}

template <QuantKind kKind>
class QuantFormat {
 public:
  static constexpr bool kHalves = !kKind.is_super;
  static constexpr bool kHasExceptions = false;
  using Units = QuantUnits<kKind>;

  QuantFormat(const QuantWeights& weights, const Activations& in, const QuantLayout& layout, PackRecord pack_one)
      : w_(weights), in_(in), layout_(layout), pack_(pack_one) {}

  int n_out() const { return w_.n_out; }
  struct Part {
    const std::uint8_t* records;  // of the tile
    int lane;
    int block;
  };
  Part part(int row, int block) const {
    const std::size_t tile = row / kTileRows;
    return {w_.records + tile * layout_.tile_bytes(in_.n_blocks), row % kTileRows, block};
  }
  void pack(const Part& part, std::int16_t* panel) const {
    pack_(part.records + layout_.record_at(part.block) + 4 * part.lane, panel);
  }
  Units units(const Part& part) const { return load_units<kKind>(layout_, part.records, part.block, part.lane); }
  F32V step(F32V acc, const BlockSums& s, const Units& units, const float* d) const {
    return quant_step<kKind>(acc, s, units, *d, in_.sums + (d - in_.d) * kSumsPerBlock);
  }

 private:
  const QuantWeights& w_;
  const Activations& in_;
  const QuantLayout& layout_;
  PackRecord pack_;
};

template <QuantKind kKind>
void gemm_quant(const QuantWeights& w, const Activations& in, const LinearJob& job, const QuantLayout& layout,
                PackRecord pack_one) {
  QuantFormat<kKind> format(w, in, layout, pack_one);
  gemm(format, in, job);
}

template <QuantLayout kLayout>
void linear_quant(const QuantWeights& w, const Activations& in, const LinearJob& job) {
  if (in.n_rows == 1) {
    gemv_quant<kLayout>(w, in, job);
  } else {
    gemm_quant<kind_of(kLayout)>(w, in, job, kLayout, pack_record<kLayout>);
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu
