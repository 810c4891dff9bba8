// One or few tokens of block-quantized weights where a dot product takes two bytes of each word (AVX2): codes meet both
// planes of the activations, and words hold the sums of a group as long as they can. A word that wraps on its way ends
// right, because what it ends with fits.
#pragma once

#include "kernels/cpu/quant_records.inl"

namespace nibble::kernels::cpu {
namespace {

constexpr bool kWantsPlaneWords = true;  // PlaneBlock::high_words, low_words

// Quads of a group, two products a word each, that a word can hold: 4 or 8.
template <QuantLayout kLayout>
constexpr int quads_of_words() {
  constexpr int kAbove = (1 << kLayout.bits) - 1 - kLayout.offset;
  constexpr int kLargest = kAbove > kLayout.offset ? kAbove : kLayout.offset;
  const int quads = kLayout.group / 4;
  return 2 * quads * kLargest * kPlaneMax <= 32767 ? quads : quads / 2;
}

// What the offset of the codes adds to the words of a group, taken away at the start.
template <QuantLayout kLayout>
inline PlaneSum start_of_words(const std::int32_t* words, int group) {
  if constexpr (kLayout.offset == 0) return plane_sum(0);
  constexpr int kGroups = kLayout.group / 16;  // of PlaneBlock
  ShortV sum = bits_as<ShortV>(i32_set1(words[kGroups * group]));
  if constexpr (kGroups == 2) sum += bits_as<ShortV>(i32_set1(words[2 * group + 1]));
  return bits_as<PlaneSum>(sum * static_cast<std::int16_t>(-kLayout.offset));
}

// The integer of each group, twice in a row's lane; ones where a sum meets no integer.
template <QuantLayout kLayout>
inline GroupScales scales_of_words(const std::uint8_t* record) {
  if constexpr (!kLayout.is_super) return ones_as_scales();
  return twice(bits_as<I32V>(scale_pair<kLayout>(record, 0)), bits_as<I32V>(scale_pair<kLayout>(record, 1)));
}

// noinline, because gcc 12 keeps the sums in memory where it inlines this.
template <QuantLayout kLayout, int kTokens, int kParts>
[[gnu::noinline]] void word_sums(const std::uint8_t* record, const PlaneBlock* in, I32V (*out)[kPartsAtOnce][2]) {
  constexpr int kGroups = 64 / kLayout.group, kQuads = quads_of_words<kLayout>();
  constexpr int kTotals = kLayout.is_super ? 1 : 2;
  ScaledSum high[kTokens][kParts][kTotals] = {}, low[kTokens][kParts][kTotals] = {};
  GroupScales scales[kParts];
#pragma GCC unroll 2
  for (int p = 0; p < kParts; ++p) scales[p] = scales_of_words<kLayout>(record + 4 * kLanes * p);
#pragma GCC unroll 4
  for (int first = 0; first < 8; first += kQuads) {  // quads `first` and `first` + 8 on
    const int groups[2] = {4 * first / kLayout.group, 4 * first / kLayout.group + kGroups / 2};
    const bool starts = 4 * first % kLayout.group == 0;
    PlaneSum sum[kTokens][kParts][2][2];  // of both groups, high and low
#pragma GCC unroll 2
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
      for (int p = 0; p < kParts; ++p) {
#pragma GCC unroll 2
        for (int g = 0; g < 2; ++g) {
          sum[t][p][g][0] = starts ? start_of_words<kLayout>(in[t].high_words, groups[g]) : plane_sum(0);
          sum[t][p][g][1] = starts ? start_of_words<kLayout>(in[t].low_words, groups[g]) : plane_sum(0);
        }
      }
    }
#pragma GCC unroll 8
    for (int quad = first; quad < first + kQuads; ++quad) {
      Quads w[kParts][2];
#pragma GCC unroll 2
      for (int p = 0; p < kParts; ++p) {
        const TwoQuads codes = load_quads<kLayout>(record + 4 * kLanes * p, quad);
        w[p][0] = bits_as<Quads>(codes.first);
        w[p][1] = bits_as<Quads>(codes.second);
      }
#pragma GCC unroll 2
      for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
        for (int g = 0; g < 2; ++g) {
#pragma GCC unroll 2
          for (int p = 0; p < kParts; ++p) {
            sum[t][p][g][0] = plane_dot(sum[t][p][g][0], w[p][g], in[t].high + 32 * g, quad);
            sum[t][p][g][1] = plane_dot(sum[t][p][g][1], w[p][g], in[t].low + 32 * g, quad);
          }
        }
      }
    }
#pragma GCC unroll 2
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
      for (int p = 0; p < kParts; ++p) {
#pragma GCC unroll 2
        for (int g = 0; g < 2; ++g) {
          add_scaled(high[t][p][g % kTotals], sum[t][p][g][0], scales[p], groups[g]);
          add_scaled(low[t][p][g % kTotals], sum[t][p][g][1], scales[p], groups[g]);
        }
      }
    }
  }
#pragma GCC unroll 2
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
    for (int p = 0; p < kParts; ++p) {
#pragma GCC unroll 2
      for (int i = 0; i < kTotals; ++i) out[t][p][i] = i32_times_8(high[t][p][i].total) + low[t][p][i].total;
    }
  }
}

// The rows of kPartsAtOnce vectors: together for one token, as registers allow.
template <QuantLayout kLayout, int kTokens>
inline void record_sums(const std::uint8_t* record, const PlaneBlock* in, const std::int16_t* /* sums */,
                        I32V (*out)[kPartsAtOnce][2]) {
  static_assert(kPartsAtOnce == 2 && kTokens <= 2);
  if constexpr (kTokens == 1) {
    word_sums<kLayout, 1, 2>(record, in, out);
  } else {
    I32V found[kTokens][kPartsAtOnce][2];
    for (int p = 0; p < 2; ++p) {
      word_sums<kLayout, kTokens, 1>(record + 4 * kLanes * p, in, found);
      for (int t = 0; t < kTokens; ++t) {
        out[t][p][0] = found[t][0][0];
        out[t][p][1] = found[t][0][1];
      }
    }
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu
