// dot_packed for instruction sets with a pair dot: lanes are rows, so nothing is added across lanes.
#pragma once

namespace nibble::kernels::cpu {
namespace {

// sums[t] += 32 columns of kLanes packed rows (pack_rows) times the integers of token t at q + 64 t.
template <int kTokens>
inline void dot_packed(const std::int16_t* packed, const std::int16_t* q, I32V* sums) {
#pragma GCC unroll 4
  for (int pair = 0; pair < 16; ++pair) {
    const I32V w = i32_load(reinterpret_cast<const std::int32_t*>(packed) + pair * kLanes);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) sums[t] = pair_dot(sums[t], w, pair_set1(q + 64 * t + 2 * pair));
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu
