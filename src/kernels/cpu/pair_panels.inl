// Panels for instruction sets with a dot product of pairs: a lane is a row, so nothing is added across lanes.
#pragma once

namespace nibble::kernels::cpu {
namespace {

// Pair `pair` of all rows to a panel.
inline void store_pairs(std::int16_t* panel, int pair, I32V words) {
  __builtin_memcpy(panel + pair * 2 * kLanes, &words, sizeof words);
}
// sums[t][v] += the first kPairs pairs of panel v times the integers of token t at q + 64 t.
template <int kPairs, int kVectors, int kTokens>
inline void dot_panels(const std::int16_t* panels, const std::int16_t* q, I32V (&sums)[kTokens][kVectors]) {
  for (int first = 0; first < kPairs; first += 4) {
#pragma GCC unroll 4
    for (int pair = first; pair < first + 4; ++pair) {
      I32V w[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) w[v] = i32_load_pairs(panels + v * kPanelSize + pair * 2 * kLanes);
#pragma GCC unroll 16
      for (int t = 0; t < kTokens; ++t) {
        const I32V two = pair_set1(q + 64 * t + 2 * pair);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[t][v] = pair_dot(sums[t][v], w[v], two);
      }
    }
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu
