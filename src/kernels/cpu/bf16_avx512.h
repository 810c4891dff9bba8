// Operands of a gemm on bf16 tiles (gemm_amx.inl), made with AVX-512.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/simd_avx512.h"

namespace nibble::kernels::cpu {
namespace {

// A record of NVFP4 as bf16, [32 pairs, 16 rows, 2]: code * q9 of its scale, which has six significant bits.
inline void fold_record_bf16(const std::uint8_t* record, std::uint16_t* tiles) {
  const __m512 q1 = _mm512_setr_ps(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
  const __m512i high_words = _mm512_set1_epi32(static_cast<int>(0xFFFF0000));
  const GroupScales scales = group_scales(record + kRecordScales);
  const __m512 unit = f32_raise(f32_set1(1.0F / (1 << kUnitBias)), load_unit(record + kRecordScales)).v;
#pragma GCC unroll 4
  for (int g = 0; g < kGroupsPerBlock; ++g) {
    const __m512i pair = scales.pair[g / 2];
    const __m512i integer = g % 2 == 0 ? _mm512_andnot_si512(high_words, pair) : _mm512_srli_epi32(pair, 16);
    const __m512 scale = _mm512_mul_ps(_mm512_cvtepi32_ps(integer), unit);
#pragma GCC unroll 2
    for (int line = 2 * g; line < 2 * g + 2; ++line) {
      const __m512i codes = _mm512_loadu_si512(record + kLineBytes * line);
      const int shifts[4] = {0, 8, 4, 12};
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {  // an index has four bits, so no mask is needed
        const __m512i first = _mm512_srli_epi32(codes, shifts[i]), second = _mm512_srli_epi32(codes, shifts[i] + 16);
        const __m512i low = _mm512_castps_si512(_mm512_mul_ps(_mm512_permutexvar_ps(first, q1), scale));
        const __m512i high = _mm512_castps_si512(_mm512_mul_ps(_mm512_permutexvar_ps(second, q1), scale));
        // high where the mask is set, otherwise low >> 16
        const __m512i both = _mm512_ternarylogic_epi32(high_words, high, _mm512_srli_epi32(low, 16), 0xCA);
        _mm512_store_si512(tiles + 32 * (4 * line + i), both);
      }
    }
  }
}

// 32 integers of 11 bits as bf16, q = high + low: multiples of 32 in [-1024, 992], and 0..31.
inline void split_bf16(const std::int16_t* q, std::uint16_t* high, std::uint16_t* low) {
  alignas(64) static constexpr struct Tables {
    std::uint16_t low[32], high[64];
    constexpr Tables() : low(), high() {
      for (int i = 0; i < 32; ++i) low[i] = bits(i);
      for (int i = 0; i < 64; ++i) high[i] = bits(32 * (i < 32 ? i : i - 64));
    }
    static constexpr std::uint16_t bits(int i) {
      return static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, static_cast<float>(i)) >> 16);
    }
  } kTables;
  const __m512i integers = _mm512_loadu_si512(q);
  const __m512i first = _mm512_loadu_si512(kTables.high), second = _mm512_loadu_si512(kTables.high + 32);
  _mm512_store_si512(high, _mm512_permutex2var_epi16(first, _mm512_srli_epi16(integers, 5), second));
  _mm512_store_si512(low, _mm512_permutexvar_epi16(integers, _mm512_loadu_si512(kTables.low)));
}

}  // namespace
}  // namespace nibble::kernels::cpu
