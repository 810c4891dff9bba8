// The vector vocabulary of AVX-512 (F, BW, VL, DQ, VNNI): 16 lanes of 32 bits.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace nibble::kernels::cpu {
namespace {

constexpr int kLanes = 16;
constexpr bool kIsAvx2 = false;

struct F32V {
  __m512 v;
};
struct I32V {
  __m512i v;
};
struct I16x32 {
  __m512i v;
};
using Partial = I32V;  // some lanes whose sum is one row's dot product

inline F32V f32_set1(float x) {
  return {_mm512_set1_ps(x)};
}
inline F32V f32_load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
inline void f32_store(float* p, F32V a) {
  _mm512_storeu_ps(p, a.v);
}
inline F32V operator+(F32V a, F32V b) {
  return {_mm512_add_ps(a.v, b.v)};
}
inline F32V operator*(F32V a, F32V b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline F32V f32_fma(F32V a, F32V b, F32V c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline F32V f32_from(I32V a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
// 2^(byte - 127) per lane.
inline F32V f32_load_pow2(const std::uint8_t* p) {
  const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(e, 23))};
}
inline F32V f32_load_f16(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}

inline I32V i32_zero() {
  return {_mm512_setzero_si512()};
}
inline I32V i32_load(const std::int32_t* p) {
  return {_mm512_loadu_si512(p)};
}
inline I32V operator+(I32V a, I32V b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
// acc + w0 * q0 + w1 * q1 per lane, each lane of w and q being two int16.
inline I32V pair_dot(I32V acc, I32V w, I32V q) {
  return {_mm512_dpwssd_epi32(acc.v, w.v, q.v)};
}
inline I32V pair_set1(const std::int16_t* p) {
  std::int32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return {_mm512_set1_epi32(pair)};
}

inline I16x32 i16_load(const std::int16_t* p) {
  return {_mm512_loadu_si512(p)};
}
inline I16x32 operator*(I16x32 a, I16x32 b) {
  return {_mm512_mullo_epi16(a.v, b.v)};
}
inline I16x32 i16_from_i8(const std::int8_t* p) {
  return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline Partial dot(Partial acc, I16x32 a, I16x32 b) {
  return {_mm512_dpwssd_epi32(acc.v, a.v, b.v)};
}

// 32 bytes of codes to q1: low nibbles (even elements) and high nibbles. A word's index has five bits, so the table
// holds the sixteen values twice and no mask is needed.
inline void decode_codes(const std::uint8_t* p, I16x32& even, I16x32& odd) {
  const __m512i q1 = _mm512_set4_epi64(0xFFF4FFF8FFFAFFFC, 0xFFFDFFFEFFFF0000, 0x000C000800060004, 0x0003000200010000);
  const __m512i codes = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  even = {_mm512_permutexvar_epi16(codes, q1)};
  odd = {_mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4), q1)};
}
// Four group scales, each repeated over the eight words of its group.
inline I16x32 expand_scales(const std::int16_t* p) {
  std::int64_t four;
  __builtin_memcpy(&four, p, sizeof four);
  const __m512i index = _mm512_set_epi64(0x0003000300030003, 0x0003000300030003, 0x0002000200020002, 0x0002000200020002,
                                         0x0001000100010001, 0x0001000100010001, 0, 0);
  return {_mm512_permutexvar_epi16(index, _mm512_set1_epi64(four))};
}

inline I16x32 i16_from_f32(__m512 a, __m512 b) {
  const __m256i low = _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a));
  const __m256i high = _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(b));
  return {_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1)};
}
// rne(value * scale), scale a power of two.
inline I16x32 i16_from_f16(const std::uint16_t* p, float scale) {
  const __m512 s = _mm512_set1_ps(scale);
  const __m512 a = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  const __m512 b = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16)));
  return i16_from_f32(_mm512_mul_ps(a, s), _mm512_mul_ps(b, s));
}
inline __m512 f32_from_bf16(const std::uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline I16x32 i16_from_bf16(const std::uint16_t* p, float scale) {
  const __m512 s = _mm512_set1_ps(scale);
  return i16_from_f32(_mm512_mul_ps(f32_from_bf16(p), s), _mm512_mul_ps(f32_from_bf16(p + 16), s));
}

// Lane r of the result is the sum of the lanes of p[r]: a transposition whose every step adds what it brings together.
inline I32V sum_rows(const Partial* p) {
  __m512i a[8], b[4];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {  // rows 2i, 2i + 1 -> pairs of lanes
    a[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(p[2 * i].v, p[2 * i + 1].v),
                            _mm512_unpackhi_epi32(p[2 * i].v, p[2 * i + 1].v));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // every 128 bits hold one sum of each of rows 4i .. 4i + 3
    b[i] =
        _mm512_add_epi32(_mm512_unpacklo_epi64(a[2 * i], a[2 * i + 1]), _mm512_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
  }
  const __m512i c0 = _mm512_add_epi32(_mm512_shuffle_i32x4(b[0], b[1], 0x88), _mm512_shuffle_i32x4(b[0], b[1], 0xDD));
  const __m512i c1 = _mm512_add_epi32(_mm512_shuffle_i32x4(b[2], b[3], 0x88), _mm512_shuffle_i32x4(b[2], b[3], 0xDD));
  return {_mm512_add_epi32(_mm512_shuffle_i32x4(c0, c1, 0x88), _mm512_shuffle_i32x4(c0, c1, 0xDD))};
}

// [16 rows][16 pairs] to [16 pairs][16 rows], a pair being 32 bits.
inline void pack_rows(const I16x32* rows, std::int16_t* packed) {
  __m512i a[16], b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    a[2 * i] = _mm512_unpacklo_epi32(rows[2 * i].v, rows[2 * i + 1].v);
    a[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i].v, rows[2 * i + 1].v);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // b[4i + j]: rows 4i .. 4i + 3 of pairs j, j + 4, j + 8, j + 12
    b[4 * i] = _mm512_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 1] = _mm512_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
    b[4 * i + 2] = _mm512_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
    b[4 * i + 3] = _mm512_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i low = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88),
                  low_odd = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xDD);
    const __m512i high = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88);
    const __m512i high_odd = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xDD);
    _mm512_store_si512(packed + 32 * j, _mm512_shuffle_i32x4(low, high, 0x88));
    _mm512_store_si512(packed + 32 * (j + 4), _mm512_shuffle_i32x4(low_odd, high_odd, 0x88));
    _mm512_store_si512(packed + 32 * (j + 8), _mm512_shuffle_i32x4(low, high, 0xDD));
    _mm512_store_si512(packed + 32 * (j + 12), _mm512_shuffle_i32x4(low_odd, high_odd, 0xDD));
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu

#include "kernels/cpu/pair_dot.inl"
