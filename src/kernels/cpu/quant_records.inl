// What a record of block-quantized weights holds (quant_layout.h), as lanes of rows.
#pragma once

#include "kernels/cpu/quant_layout.h"

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

}  // namespace
}  // namespace nibble::kernels::cpu
