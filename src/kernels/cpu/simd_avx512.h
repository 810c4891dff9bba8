// The vector vocabulary of AVX-512 (F, BW, VL, DQ, VNNI): 16 lanes of 32 bits.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace nibble::kernels::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int kPanelSize = 64 * kLanes;  // int16 of one block of kLanes rows: [32 pairs][kLanes rows][2]
constexpr int kPanelVectors = 2;         // of rows and
constexpr int kPanelTokens = 6;          // tokens whose sums are held in registers
constexpr int kGemvTokens = 4;           // that meet a record as it is read
constexpr int kHeadsAtOnce = 4;          // of attention, that meet keys and values as they are read; 2 or 4
constexpr int kPartsAtOnce = 1;          // of a record, for one token
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
// To the nearest f16, ties to even, and back.
inline F32V f32_round_to_f16(F32V a) {
  return {_mm512_cvtph_ps(_mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}

inline I32V i32_zero() {
  return {_mm512_setzero_si512()};
}
inline I32V i32_set1(std::int32_t x) {
  return {_mm512_set1_epi32(x)};
}
inline I32V i32_load_pairs(const void* p) {
  return {_mm512_loadu_si512(p)};
}
inline I32V operator+(I32V a, I32V b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
inline I32V operator&(I32V a, I32V b) {
  return {_mm512_and_si512(a.v, b.v)};
}
// x times a power of two that keeps it normal, given as what to add to its exponent; finite and positive if x is zero.
inline F32V f32_raise(F32V x, I32V exponent) {
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x.v), exponent.v))};
}
inline I32V i32_times_8(I32V a) {
  return {_mm512_slli_epi32(a.v, 3)};
}
// acc + w0 * q0 + w1 * q1 per lane, each lane of w and q being two int16. Assembly, because gcc 12 copies the sum of
// the intrinsic to another register and back (a sixth of attention's time).
inline I32V pair_dot(I32V acc, I32V w, I32V q) {
  __asm__("vpdpwssd %2, %1, %0" : "+v"(acc.v) : "v"(w.v), "v"(q.v));
  return acc;
}
// acc + the four bytes of each lane of w, unsigned and below 64, times quad `quad` of the signed ones at q.
inline I32V quad_dot(I32V acc, I32V w, const std::int8_t* q, int quad) {
  std::int32_t four;
  __builtin_memcpy(&four, q + 4 * quad, sizeof four);
  return {_mm512_dpbusd_epi32(acc.v, w.v, _mm512_set1_epi32(four))};
}
// acc + the four bytes of each lane of w, within -127..127, times four of 0..127.
inline I32V weigh_quads(I32V acc, I32V w, const std::int8_t* q) {
  std::int32_t four;
  __builtin_memcpy(&four, q, sizeof four);
  __asm__("vpdpbusd %2, %1, %0" : "+v"(acc.v) : "v"(_mm512_set1_epi32(four)), "v"(w.v));  // as pair_dot
  return acc;
}
inline void i32_store(std::int32_t* p, I32V a) {
  _mm512_storeu_si512(p, a.v);
}
inline I32V pair_set1(const std::int16_t* p) {
  std::int32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return {_mm512_set1_epi32(pair)};
}

inline I16x32 i16_load(const std::int16_t* p) {
  return {_mm512_loadu_si512(p)};
}
inline Partial dot(Partial acc, I16x32 a, I16x32 b) {
  return {_mm512_dpwssd_epi32(acc.v, a.v, b.v)};
}

// --- records: a lane is a row ---

// Four int8 a row, elements 0, 2, 1, 3, as the pairs 0, 1 and 2, 3.
inline void split_quads(const std::uint8_t* p, I32V& first, I32V& second) {
  const __m512i four = _mm512_loadu_si512(p);
  first = {_mm512_srai_epi16(_mm512_slli_epi16(four, 8), 8)};
  second = {_mm512_srai_epi16(four, 8)};
}

// --- records of FP8 (linear_fp8.inl): a byte is exponent << 4 | sign << 3 | mantissa ---

// Four weights a row, as split_quads: those of exponent 4 and more, without the last three bits; zeros for others.
inline void fp8_large(const std::uint8_t* p, I32V& first, I32V& second) {
  // A word's index has five bits, so the table holds the sixteen values twice and no mask is needed.
  const __m512i mantissa = _mm512_set4_epi64(0xFFF1FFF2FFF3FFF4, 0xFFF5FFF6FFF7FFF8,  //
                                             0x000F000E000D000C, 0x000B000A00090008);
  const __m512i four = _mm512_set1_epi16(kFp8LargeExponent), low = _mm512_set1_epi16(15);
  const __m512i codes = _mm512_loadu_si512(p);
  const __m512i m0 = _mm512_permutexvar_epi16(codes, mantissa);
  const __m512i m1 = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 8), mantissa);
  // A shift by a negative number is one by more than 15 and leaves nothing.
  const __m512i s0 = _mm512_sub_epi16(_mm512_and_si512(_mm512_srli_epi16(codes, 4), low), four);
  const __m512i s1 = _mm512_sub_epi16(_mm512_srli_epi16(codes, 12), four);
  first = {_mm512_sllv_epi16(m0, s0)};
  second = {_mm512_sllv_epi16(m1, s1)};
}
// The weights of smaller exponents, zeros for others.
inline void fp8_small(const std::uint8_t* p, I32V& first, I32V& second) {
  // By exponent, sign and mantissa, six bits.
  const __m512i low = _mm512_set_epi64(0xFFF1FFF2FFF3FFF4, 0xFFF5FFF6FFF7FFF8, 0x000F000E000D000C, 0x000B000A00090008,
                                       0xFFF9FFFAFFFBFFFC, 0xFFFDFFFEFFFF0000, 0x0007000600050004, 0x0003000200010000);
  const __m512i high = _mm512_set_epi64(0xFFC4FFC8FFCCFFD0, 0xFFD4FFD8FFDCFFE0, 0x003C003800340030, 0x002C002800240020,
                                        0xFFE2FFE4FFE6FFE8, 0xFFEAFFECFFEEFFF0, 0x001E001C001A0018, 0x0016001400120010);
  const __m512i codes = _mm512_loadu_si512(p), others = _mm512_srli_epi16(codes, 8);
  const __m512i upper = _mm512_set1_epi16(0xC0);
  first = {_mm512_maskz_permutex2var_epi16(_mm512_testn_epi16_mask(codes, upper), low, codes, high)};
  second = {_mm512_maskz_permutex2var_epi16(_mm512_testn_epi16_mask(others, upper), low, others, high)};
}

// --- records of NVFP4 (nvfp4_tiles.h) ---

// Four weights of each row, as q1 + 12, because a byte dot product wants one side unsigned.
struct Quads {
  __m512i v;
};
inline void decode_quads(const std::uint8_t* p, Quads& low, Quads& high) {
  const __m512i offset_q1 = _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24,  //
                                                                 12, 11, 10, 9, 8, 6, 4, 0));
  const __m512i mask = _mm512_set1_epi8(15), codes = _mm512_loadu_si512(p);
  low = {_mm512_shuffle_epi8(offset_q1, _mm512_and_si512(codes, mask))};
  high = {_mm512_shuffle_epi8(offset_q1, _mm512_and_si512(_mm512_srli_epi16(codes, 4), mask))};
}

// Sum of a group over one plane, which starts at minus what the offset adds; |sum| <= 16 * 12 * 128 is an int16.
struct PlaneSum {
  __m512i v;
};
inline std::int32_t plane_start(const std::int8_t* plane) {
  std::int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += plane[i];
  return -12 * sum;
}
inline PlaneSum plane_sum(std::int32_t start) {
  return {_mm512_set1_epi32(start)};
}
inline PlaneSum plane_dot(PlaneSum sum, Quads w, const std::int8_t* q, int quad) {
  std::int32_t four;
  __builtin_memcpy(&four, q + 4 * quad, sizeof four);
  return {_mm512_dpbusd_epi32(sum.v, w.v, _mm512_set1_epi32(four))};
}

// Scales of groups 0, 1 and 2, 3 as pairs of words.
struct GroupScales {
  __m512i pair[2];
};
inline GroupScales group_scales(const std::uint8_t* p) {
  // A word's index has six bits, which is what a scale has: m | e << 3.
  const __m512i first =
      _mm512_set_epi64(0x0078007000680060, 0x0058005000480040, 0x003C003800340030, 0x002C002800240020,
                       0x001E001C001A0018, 0x0016001400120010, 0x000F000E000D000C, 0x000B000A00090008);
  const __m512i second = _mm512_slli_epi16(first, 4);
  const __m512i scales = _mm512_loadu_si512(p);
  return {{_mm512_permutex2var_epi16(first, scales, second),
           _mm512_permutex2var_epi16(first, _mm512_srli_epi16(scales, 8), second)}};
}
// Sums of groups times their scales, added in the order of the groups: two at a time, as pairs of words.
struct ScaledSum {
  I32V total;
  PlaneSum even;
};
inline void add_scaled(ScaledSum& to, PlaneSum sum, const GroupScales& scales, int group) {
  if (group % 2 == 0) {
    to.even = sum;
  } else {
    const __m512i sums = _mm512_mask_blend_epi16(0xAAAAAAAA, to.even.v, _mm512_slli_epi32(sum.v, 16));
    to.total = {_mm512_dpwssd_epi32(to.total.v, sums, scales.pair[group / 2])};
  }
}
// The unit of each row, biased, of its four digits: what raises the exponent of a float by it.
inline I32V load_unit(const std::uint8_t* p) {
  const __m512i digits = _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(static_cast<char>(0xC0)));
  const __m512i unit = _mm512_dpbusd_epi32(_mm512_setzero_si512(), digits, _mm512_set1_epi32(0x40100401));  // * 64
  return {_mm512_slli_epi32(unit, 17)};
}

// Codes times the scale of their group as a panel: [4 pairs][16 rows] from each line.
inline void fold_record(const std::uint8_t* record, std::int16_t* panel) {
  const __m512i q1 = _mm512_set4_epi64(0xFFF4FFF8FFFAFFFC, 0xFFFDFFFEFFFF0000, 0x000C000800060004, 0x0003000200010000);
  const __m512i low_twice = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13));
  const __m512i high_twice = _mm512_add_epi8(low_twice, _mm512_set1_epi8(2));
  const GroupScales scales = group_scales(record + kRecordScales);
#pragma GCC unroll 4
  for (int g = 0; g < kGroupsPerBlock; ++g) {
    const __m512i scale = _mm512_shuffle_epi8(scales.pair[g / 2], g % 2 == 0 ? low_twice : high_twice);
#pragma GCC unroll 2
    for (int z = 0; z < 2; ++z) {
      const int line = 2 * g + z;
      // A word's index has five bits, so the table holds the sixteen values twice and no mask is needed.
      const __m512i codes = _mm512_loadu_si512(record + kLineBytes * line);
      const __m512i index[4] = {codes, _mm512_srli_epi16(codes, 8), _mm512_srli_epi16(codes, 4),
                                _mm512_srli_epi16(codes, 12)};
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const __m512i w = _mm512_mullo_epi16(_mm512_permutexvar_epi16(index[i], q1), scale);
        _mm512_store_si512(panel + (4 * line + i) * 2 * kLanes, w);
      }
    }
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu

#include "kernels/cpu/pair_panels.inl"
// after the panels
#include "kernels/cpu/folded_panels.inl"
#include "kernels/cpu/pair_sums.inl"
#include "kernels/cpu/quant_bytes.inl"
