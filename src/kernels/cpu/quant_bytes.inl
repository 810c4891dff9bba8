// One or few tokens of block-quantized weights where a dot product takes four bytes of each lane: codes meet both
// planes of the activations, and a sum of each group is an int32.
#pragma once

#include "kernels/cpu/quant_records.inl"

namespace nibble::kernels::cpu {
namespace {

constexpr bool kWantsPlaneWords = false;  // PlaneBlock::high_words, low_words

// The sums of kLanes rows and kTokens tokens over a block. Codes are decoded once.
template <QuantLayout kLayout, int kTokens>
inline void plane_sums(const std::uint8_t* record, const PlaneBlock* in, const std::int16_t* sums, I32V (*out)[2]) {
  constexpr int kGroups = 64 / kLayout.group;
  I32V high[kTokens][kGroups], low[kTokens][kGroups];
#pragma GCC unroll 4
  for (int token = 0; token < kTokens; ++token) {
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      high[token][g] = i32_zero();
      // What the offset of the codes adds is taken away at the start.
      low[token][g] = i32_set1(-kLayout.offset * sums[token * kSumsPerBlock + (kGroups == 4 ? g : 4 + g)]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < 8; ++t) {
    const TwoQuads w = load_quads<kLayout>(record, t);
    const I32V first = bits_as<I32V>(w.first), second = bits_as<I32V>(w.second);
    const int g = 4 * t / kLayout.group, g2 = g + kGroups / 2;
#pragma GCC unroll 4
    for (int token = 0; token < kTokens; ++token) {
      high[token][g] = quad_dot(high[token][g], first, in[token].high, t);
      low[token][g] = quad_dot(low[token][g], first, in[token].low, t);
      high[token][g2] = quad_dot(high[token][g2], second, in[token].high + 32, t);
      low[token][g2] = quad_dot(low[token][g2], second, in[token].low + 32, t);
    }
  }
#pragma GCC unroll 4
  for (int token = 0; token < kTokens; ++token) {
    IntV sum[kGroups];
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) sum[g] = bits_as<IntV>(i32_times_8(high[token][g]) + low[token][g]);
    if constexpr (!kLayout.is_super) {
      out[token][0] = bits_as<I32V>(sum[0]);
      out[token][1] = bits_as<I32V>(sum[1]);
    } else {
      IntV total = {};
#pragma GCC unroll 2
      for (int pair = 0; pair < kGroups / 2; ++pair) {
        const ShortV scales = scale_pair<kLayout>(record, pair);
        total += low_of_pair(scales) * sum[2 * pair] + high_of_pair(scales) * sum[2 * pair + 1];
      }
      out[token][0] = bits_as<I32V>(total);
    }
  }
}

// The rows of kPartsAtOnce vectors.
template <QuantLayout kLayout, int kTokens>
inline void record_sums(const std::uint8_t* record, const PlaneBlock* in, const std::int16_t* sums,
                        I32V (*out)[kPartsAtOnce][2]) {
#pragma GCC unroll 4
  for (int p = 0; p < kPartsAtOnce; ++p) {
    I32V found[kTokens][2];
    plane_sums<kLayout, kTokens>(record + 4 * kLanes * p, in, sums, found);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      out[t][p][0] = found[t][0];
      if constexpr (!kLayout.is_super) out[t][p][1] = found[t][1];
    }
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu
