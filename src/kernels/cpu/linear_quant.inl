// Block-quantized weights of GGUF from records (quant_layout.h), by section 12 of the contract.
//
//   few tokens:  codes meet two planes of 8 bits in byte dot products, and the sums of each group its integer scale
//   more tokens: (code - offset) * scale is a panel of int16, as with NVFP4
//
// What a minimum is multiplied with, the sums of activations over groups, is made once per input (sum_groups).
#pragma once

namespace nibble::kernels::cpu {
namespace {

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

// What does not depend on how codes are stored.
template <QuantKind kKind>
class QuantRows : public FormatOfBlocks {
 public:
  static constexpr bool kHalves = !kKind.is_super;
  using Units = QuantUnits<kKind>;

  QuantRows(const QuantWeights& weights, const Activations& in, const QuantLayout& layout)
      : w_(weights), in_(in), record_bytes_(layout.record_bytes()), scales_at_(layout.scales_at()) {}

  int n_out() const { return w_.n_out; }
  const std::uint8_t* records() const { return w_.records; }
  RecordPart part(int row, int block) const {
    const int tile = row / kTileRows;
    const std::size_t at = static_cast<std::size_t>(tile) * in_.n_blocks + block;
    return {w_.records + at * record_bytes_, tile, row % kTileRows, block};
  }

  Units units(const RecordPart& part) const {
    const std::uint8_t* line = part.record + scales_at_;
    Units out;
    if constexpr (kKind.is_super) {
      const std::size_t at = static_cast<std::size_t>(part.tile) * (in_.n_blocks / 4) + part.block / 4;
      const std::uint16_t* scales = w_.super_scales + at * 2 * kTileRows + part.row;
      out.d[0] = f32_load_f16(scales);
      if constexpr (kKind.has_minimum) {
        out.m[0] = f32_load_f16(scales + kTileRows) * f32_set1(-1.0F);
        const WordV integers = load_line(line + 4 * part.row);
        if constexpr (kKind.group == 32) {
          out.minimum[0] = bits_as<I32V>(integers >> 8 & 0x00FF00FFU);
        } else {
          out.minimum[0] = bits_as<I32V>(integers >> 4 & 0x000F000FU);
          out.minimum[1] = bits_as<I32V>(integers >> 12 & 0x000F000FU);
        }
      }
    } else {
      const auto* scales = reinterpret_cast<const std::uint16_t*>(line) + part.row;
      for (int half = 0; half < 2; ++half) {
        out.d[half] = f32_load_f16(scales + half * kTileRows);
        if constexpr (kKind.has_minimum) out.m[half] = f32_load_f16(scales + (2 + half) * kTileRows);
      }
    }
    return out;
  }

  F32V step(F32V acc, I32V sum, int half, const Units& units, const float* d) const {
    const F32V dx = f32_set1(*d);
    acc = f32_fma(f32_from(sum), dx * units.d[kHalves ? half : 0], acc);
    if constexpr (kKind.has_minimum) {
      const std::int16_t* sums = in_.sums + (d - in_.d) * kSumsPerBlock;
      F32V minimums;
      if constexpr (kHalves) {
        minimums = f32_set1(static_cast<float>(sums[4 + half]));
      } else if constexpr (kKind.group == 32) {
        minimums = f32_from(pair_dot(i32_zero(), units.minimum[0], pair_set1(sums + 4)));
      } else {
        const I32V first = pair_dot(i32_zero(), units.minimum[0], pair_set1(sums));
        minimums = f32_from(pair_dot(first, units.minimum[1], pair_set1(sums + 2)));
      }
      acc = f32_fma(minimums, dx * units.m[kHalves ? half : 0], acc);
    }
    return acc;
  }

 private:
  const QuantWeights& w_;
  const Activations& in_;
  std::size_t record_bytes_;
  int scales_at_;
};

// --- few tokens ---

template <QuantLayout kLayout>
class QuantRecords : public QuantRows<kind_of(kLayout)> {
 public:
  static constexpr int kRecord = kLayout.record_bytes();

  QuantRecords(const QuantWeights& weights, const Activations& in)
      : QuantRows<kind_of(kLayout)>(weights, in, kLayout) {}

  template <int kTokens, int kStream>
  void sums(const RecordPart* parts, const Activations& in, BlockSums (*out)[kPartsAtOnce]) const {
    keep_apart<kStream>();
    if (parts[0].row == 0) {
#pragma GCC unroll 16
      for (int i = 0; i < kRecord; i += kLineBytes) __builtin_prefetch(parts[0].record + kPrefetchBytes + i);
    }
    const std::size_t at = static_cast<std::size_t>(parts[0].block) * kTokens;
    I32V found[kTokens][kPartsAtOnce][2];
    record_sums<kLayout, kTokens>(parts[0].line(0), in.planes + at, in.sums + at * kSumsPerBlock, found);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int p = 0; p < kPartsAtOnce; ++p) {
        out[t][p].first = found[t][p][0];
        if constexpr (!kLayout.is_super) out[t][p].second = found[t][p][1];
      }
    }
  }
};

// --- more tokens ---

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
using PackRecord = void (*)(const RecordPart& part, std::int16_t* panel);
template <QuantLayout kLayout>
void pack_record(const RecordPart& part, std::int16_t* panel) {
  part.prefetch<kLayout.record_bytes() / kLineBytes>(0);
  const std::uint8_t* record = part.line(0);
#pragma GCC unroll 8
  for (int t = 0; t < 8; ++t) {
    const TwoQuads w = load_quads<kLayout>(record, t);
    pack_quad<kLayout>(record, t, w.first, panel);
    pack_quad<kLayout>(record, t + 8, w.second, panel);
  }
}

// Types of one kind share the loops over panels; how a record becomes one is a call.
template <QuantKind kKind>
class QuantPanels : public QuantRows<kKind> {
 public:
  QuantPanels(const QuantWeights& weights, const Activations& in, const QuantLayout& layout, PackRecord pack_part)
      : QuantRows<kKind>(weights, in, layout), pack_(pack_part) {}
  void pack(const RecordPart& part, std::int16_t* panel) const { pack_(part, panel); }

 private:
  PackRecord pack_;
};

template <QuantKind kKind>
void gemm_quant(const QuantWeights& w, const Activations& in, const LinearJob& job, const QuantLayout& layout,
                PackRecord pack_part) {
  gemm(QuantPanels<kKind>(w, in, layout, pack_part), in, job);
}

template <QuantLayout kLayout>
void linear_quant(const QuantWeights& w, const Activations& in, const LinearJob& job) {
  if (in.n_rows <= kGemvTokens) {
    linear_of_few<kGemvTokens>(QuantRecords<kLayout>(w, in), in, job);
  } else {
    gemm_quant<kind_of(kLayout)>(w, in, job, kLayout, pack_record<kLayout>);
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu
