// E4M3FN rows. A weight is an integer of up to 18 bits in units of 2^-9: 8 * large + small, of which one is zero.
// Weights of exponent kFp8LargeExponent and more, 2^-3 to 448, are large: a multiple of 8, and an int16 without its
// last three bits. Others are small, at most 60. Where scales are of rows, one weight in a thousand is small; so sums
// of large ones are what the loops are about; which lines have small ones is known from when they were packed.
#pragma once

namespace nibble::kernels::cpu {
namespace {

class Fp8Format : public FormatOfBlocks {
 public:
  static constexpr bool kHasRest = true;
  static constexpr int kRecord = kFp8RecordBytes;
  using Units = F32V;

  Fp8Format(const Fp8Weights& weights, int n_blocks) : w_(weights), n_blocks_(n_blocks) {}

  int n_out() const { return w_.n_out; }
  const std::uint8_t* records() const { return w_.records; }
  RecordPart part(int row, int block) const { return part_of(*this, row, block, n_blocks_); }

  template <int kTokens, int kStream>
  void sums(const RecordPart* parts, const Activations& in, BlockSums (*out)[kPartsAtOnce]) const {
    keep_apart<kStream>();
    const std::int16_t* q = in.q + static_cast<std::size_t>(parts[0].block) * kTokens * 64;
    constexpr int kChains = kTokens == 1 ? 4 : 2;  // a dot product is waited for
    const std::uint32_t small_lines = small_lines_of(parts[0]);
#pragma GCC unroll 4
    for (int p = 0; p < kPartsAtOnce; ++p) {
      I32V large[kTokens][kChains], small[kTokens];
      for (int t = 0; t < kTokens; ++t) {
        for (int i = 0; i < kChains; ++i) large[t][i] = i32_zero();
        small[t] = i32_zero();
      }
#pragma GCC unroll 16
      for (int line = 0; line < 16; ++line) {
        parts[p].template prefetch<1>(line);
        I32V first, second;
        fp8_large(parts[p].line(line), first, second);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          I32V &even = large[t][2 * line % kChains], &odd = large[t][2 * line % kChains + 1];
          even = pair_dot(even, first, pair_set1(q + 64 * t + 4 * line));
          odd = pair_dot(odd, second, pair_set1(q + 64 * t + 4 * line + 2));
        }
      }
      add_small(parts[p], small_lines, q, small);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        I32V total = large[t][0] + large[t][1];
        if constexpr (kChains == 4) total = total + (large[t][2] + large[t][3]);
        out[t][p] = {total, small[t]};
      }
    }
  }
  template <class Rest>
  void pack(const RecordPart& part, std::int16_t* panel, Rest& rest, int b, int v) const {
    const std::uint32_t small_lines = small_lines_of(part);
    for (int line = 0; line < 16; ++line) {
      part.prefetch<1>(line);
      const std::uint8_t* codes = part.line(line);
      I32V first, second;
      fp8_large(codes, first, second);
      store_pairs(panel, 2 * line, first);
      store_pairs(panel, 2 * line + 1, second);
      if ((small_lines >> line & 1) == 0) continue;
      fp8_small(codes, first, second);
      rest.add(b, 2 * line, v, first);
      rest.add(b, 2 * line + 1, v, second);
    }
  }
  F32V units(const RecordPart& part) const {
    const std::size_t at = static_cast<std::size_t>(part.tile) * w_.n_scales + (part.block >> w_.scale_shift);
    return f32_load(w_.g + at * kTileRows + part.row);
  }
  F32V step(F32V acc, I32V large, int /* half */, F32V g, const float* d) const {
    return f32_fma(f32_from(large) * f32_set1(8.0F), f32_set1(*d) * g, acc);
  }
  // S = 8 * large + small has up to 34 bits. The upper bits of `large` are one f32, all that is left, less than 2^24,
  // is another, and their sum is rounded once.
  F32V step_with_rest(F32V acc, I32V large, I32V small, F32V g, const float* d) const {
    constexpr std::int32_t kLow = 0xFFF;
    const I32V rest = i32_times_8(large & i32_set1(kLow)) + small;
    const F32V sum = f32_fma(f32_from(large & i32_set1(~kLow)), f32_set1(8.0F), f32_from(rest));
    return f32_fma(sum, f32_set1(*d) * g, acc);
  }

 private:
  std::uint32_t small_lines_of(const RecordPart& part) const {
    return w_.small_lines[static_cast<std::size_t>(part.tile) * n_blocks_ + part.block];
  }
  // The small weights of those lines. Two rounds are made whether there are lines or not: of a record's sixteen mostly
  // none, one or two have any, and a branch on which costs more than the rounds.
  template <int kTokens>
  static void add_small(const RecordPart& part, std::uint32_t lines, const std::int16_t* q, I32V (&small)[kTokens]) {
    alignas(kLineBytes) static constexpr std::uint8_t kZeros[kLineBytes] = {};
    for (int i = 0; i < 2 || lines != 0; ++i, lines &= lines - 1) {
      const int line = __builtin_ctz(lines | 1U << 15);
      I32V first, second;
      fp8_small(lines != 0 ? part.line(line) : kZeros, first, second);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        small[t] = pair_dot(small[t], first, pair_set1(q + 64 * t + 4 * line));
        small[t] = pair_dot(small[t], second, pair_set1(q + 64 * t + 4 * line + 2));
      }
    }
  }

  const Fp8Weights& w_;
  int n_blocks_;
};

void linear_fp8(const Fp8Weights& w, const Activations& in, const LinearJob& job) {
  linear(Fp8Format(w, in.n_blocks), in, job);
}

}  // namespace
}  // namespace nibble::kernels::cpu
