// The vector vocabulary of AVX2 with FMA and F16C: 8 lanes of 32 bits. With AVX-VNNI, dot products are one instruction.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace nibble::kernels::cpu {
namespace {

constexpr int kLanes = 8;
constexpr int kPanelSize = 64 * kLanes;  // int16 of one block of kLanes rows: [32 pairs][kLanes rows][2]
constexpr int kPanelVectors = 2;         // of rows, whose sums for kPanelTokens tokens are held in registers
constexpr int kGemvTokens = 2;           // that meet a record as it is read
constexpr int kHeadsAtOnce = 2;          // of attention, that meet keys and values as they are read; 2 or 4
constexpr int kPartsAtOnce = 2;          // of a record, for one token
#if defined(__AVXVNNI__)
constexpr int kPanelTokens = 6;
constexpr bool kIsAvx2 = false;
#else
constexpr int kPanelTokens = 4;  // products need registers too
constexpr bool kIsAvx2 = true;
#endif

struct F32V {
  __m256 v;
};
struct I32V {
  __m256i v;
};
struct I16x32 {
  __m256i a, b;  // words 0..15, 16..31
};
using Partial = I32V;  // some lanes whose sum is one row's dot product

inline __m128i load_128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
inline __m256i load_256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

inline F32V f32_set1(float x) {
  return {_mm256_set1_ps(x)};
}
inline F32V f32_load(const float* p) {
  return {_mm256_loadu_ps(p)};
}
inline void f32_store(float* p, F32V a) {
  _mm256_storeu_ps(p, a.v);
}
inline F32V operator+(F32V a, F32V b) {
  return {_mm256_add_ps(a.v, b.v)};
}
inline F32V operator*(F32V a, F32V b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
inline F32V f32_fma(F32V a, F32V b, F32V c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
inline F32V f32_from(I32V a) {
  return {_mm256_cvtepi32_ps(a.v)};
}
// 2^(byte - 127) per lane.
inline F32V f32_load_pow2(const std::uint8_t* p) {
  const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(e, 23))};
}
inline F32V f32_load_f16(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(load_128(p))};
}
// To the nearest f16, ties to even, and back.
inline F32V f32_round_to_f16(F32V a) {
  return {_mm256_cvtph_ps(_mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}

inline I32V i32_zero() {
  return {_mm256_setzero_si256()};
}
inline I32V i32_set1(std::int32_t x) {
  return {_mm256_set1_epi32(x)};
}
inline I32V i32_load_pairs(const void* p) {
  return {load_256(p)};
}
inline I32V operator+(I32V a, I32V b) {
  return {_mm256_add_epi32(a.v, b.v)};
}
inline I32V operator&(I32V a, I32V b) {
  return {_mm256_and_si256(a.v, b.v)};
}
// x times a power of two that keeps it normal, given as what to add to its exponent; finite and positive if x is zero.
inline F32V f32_raise(F32V x, I32V exponent) {
  return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x.v), exponent.v))};
}
inline I32V i32_times_8(I32V a) {
  return {_mm256_slli_epi32(a.v, 3)};
}
// A sum that is to be made here: gcc 12 keeps products for later, in memory when it has no registers left (half of the
// speed of a gemm).
inline __m256i add_now(__m256i a, __m256i b) {
  __m256i sum = _mm256_add_epi32(a, b);
  __asm__("" : "+x"(sum));
  return sum;
}
// acc + w0 * q0 + w1 * q1 per lane, each lane of w and q being two int16.
inline __m256i dot_of_pairs(__m256i acc, __m256i w, __m256i q) {
#if defined(__AVXVNNI__)
  return _mm256_dpwssd_avx_epi32(acc, w, q);
#else
  return add_now(acc, _mm256_madd_epi16(w, q));
#endif
}
inline I32V pair_dot(I32V acc, I32V w, I32V q) {
  return {dot_of_pairs(acc.v, w.v, q.v)};
}
// acc + the four bytes of each lane of w, unsigned and below 64, times quad `quad` of the signed ones at q.
inline I32V quad_dot(I32V acc, I32V w, const std::int8_t* q, int quad) {
  std::int32_t four;
  __builtin_memcpy(&four, q + 4 * quad, sizeof four);
#if defined(__AVXVNNI__)
  return {_mm256_dpbusd_avx_epi32(acc.v, w.v, _mm256_set1_epi32(four))};
#else
  const __m256i pairs = _mm256_maddubs_epi16(w.v, _mm256_set1_epi32(four));  // |pair| <= 2 * 63 * 128
  return {_mm256_add_epi32(acc.v, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))};
#endif
}
// acc + the four bytes of each lane of w, within -127..127, times four of 0..127.
inline I32V weigh_quads(I32V acc, I32V w, const std::int8_t* q) {
  std::int32_t four;
  __builtin_memcpy(&four, q, sizeof four);
#if defined(__AVXVNNI__)
  return {_mm256_dpbusd_avx_epi32(acc.v, _mm256_set1_epi32(four), w.v)};
#else
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi32(four), w.v);  // |pair| <= 2 * 127 * 127
  return {_mm256_add_epi32(acc.v, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))};
#endif
}
inline void i32_store(std::int32_t* p, I32V a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v);
}
inline I32V pair_set1(const std::int16_t* p) {
  std::int32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return {_mm256_set1_epi32(pair)};
}

inline I16x32 i16_load(const std::int16_t* p) {
  return {load_256(p), load_256(p + 16)};
}
inline Partial dot(Partial acc, I16x32 x, I16x32 y) {
  return {dot_of_pairs(dot_of_pairs(acc.v, x.a, y.a), x.b, y.b)};
}

// --- records: a lane is a row ---

// Four int8 a row, elements 0, 2, 1, 3, as the pairs 0, 1 and 2, 3.
inline void split_quads(const std::uint8_t* p, I32V& first, I32V& second) {
  const __m256i four = load_256(p);
  first = {_mm256_srai_epi16(_mm256_slli_epi16(four, 8), 8)};
  second = {_mm256_srai_epi16(four, 8)};
}

// --- records of FP8 (linear_fp8.inl): a byte is exponent << 4 | sign << 3 | mantissa ---

inline __m256i twice_128(__m128i table) {
  return _mm256_broadcastsi128_si256(table);
}
// Exponents of the bytes at even and at odd places, each with a sign bit at the other places, which looks up a zero.
struct Fp8Exponents {
  __m256i all, even, odd;
};
inline Fp8Exponents fp8_exponents(__m256i codes) {
  const __m256i all = _mm256_and_si256(_mm256_srli_epi16(codes, 4), _mm256_set1_epi8(15));
  return {all, _mm256_or_si256(all, _mm256_set1_epi16(static_cast<short>(0x8000))),
          _mm256_or_si256(all, _mm256_set1_epi16(0x80))};
}
inline __m256i fp8_mantissas(__m256i codes) {
  const __m256i mantissa = twice_128(_mm_setr_epi8(8, 9, 10, 11, 12, 13, 14, 15, -8, -9, -10, -11, -12, -13, -14, -15));
  return _mm256_shuffle_epi8(mantissa, _mm256_and_si256(codes, _mm256_set1_epi8(15)));
}
// Four weights a row, as split_quads: those of exponent 4 and more, without the last three bits; zeros for others.
inline void fp8_large(const std::uint8_t* p, I32V& first, I32V& second) {
  // A power of two is looked up as two bytes, the upper one eight places before. At negative places is nothing.
  const __m256i power =
      twice_128(_mm_setr_epi8(0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, static_cast<char>(128), 0, 0, 0, 0));
  const __m256i eight_before = _mm256_set1_epi16(8 << 8);
  const __m256i even = twice_128(_mm_setr_epi8(0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14));
  const __m256i odd = twice_128(_mm_setr_epi8(1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 15, 15));
  const __m256i codes = load_256(p), mantissa = fp8_mantissas(codes);
  const __m256i exponent = _mm256_and_si256(_mm256_srli_epi16(codes, 4), _mm256_set1_epi8(15));
  const auto powers = [&](__m256i twice) {
    return _mm256_shuffle_epi8(power, _mm256_sub_epi8(_mm256_shuffle_epi8(exponent, twice), eight_before));
  };
  first = {_mm256_mullo_epi16(powers(even), _mm256_srai_epi16(_mm256_slli_epi16(mantissa, 8), 8))};
  second = {_mm256_mullo_epi16(powers(odd), _mm256_srai_epi16(mantissa, 8))};
}
// The weights of smaller exponents, zeros for others.
inline void fp8_small(const std::uint8_t* p, I32V& first, I32V& second) {
  const __m256i power = twice_128(_mm_setr_epi8(1, 1, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  const __m256i subnormal = twice_128(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 0, -1, -2, -3, -4, -5, -6, -7));
  const __m256i codes = load_256(p);
  const Fp8Exponents e = fp8_exponents(codes);
  const __m256i without = _mm256_shuffle_epi8(subnormal, _mm256_and_si256(codes, _mm256_set1_epi8(15)));
  const __m256i mantissa =
      _mm256_blendv_epi8(fp8_mantissas(codes), without, _mm256_cmpeq_epi8(e.all, _mm256_setzero_si256()));
  first = {_mm256_maddubs_epi16(_mm256_shuffle_epi8(power, e.even), mantissa)};
  second = {_mm256_maddubs_epi16(_mm256_shuffle_epi8(power, e.odd), mantissa)};
}

// --- records of NVFP4 (nvfp4_tiles.h) ---

// Four weights of each row, as q1 + 12, because a byte dot product wants one side unsigned.
struct Quads {
  __m256i v;
};
inline void decode_quads(const std::uint8_t* p, Quads& low, Quads& high) {
  const __m256i offset_q1 = _mm256_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0,  //
                                             12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
  const __m256i mask = _mm256_set1_epi8(15), codes = load_256(p);
  low = {_mm256_shuffle_epi8(offset_q1, _mm256_and_si256(codes, mask))};
  high = {_mm256_shuffle_epi8(offset_q1, _mm256_and_si256(_mm256_srli_epi16(codes, 4), mask))};
}

// Sum of a group over one plane as two words a row, each of two elements in four. They start at minus what the offset
// adds; |word| <= 8 * 12 * 128, and on the way there an int16 may wrap.
struct PlaneSum {
  __m256i v;
};
inline std::int32_t plane_start(const std::int8_t* plane) {
  std::int32_t first = 0, second = 0;
  for (int i = 0; i < 16; i += 4) {
    first += plane[i] + plane[i + 1];
    second += plane[i + 2] + plane[i + 3];
  }
  return (-12 * first & 0xFFFF) | static_cast<std::int32_t>(static_cast<std::uint32_t>(-12 * second) << 16);
}
inline PlaneSum plane_sum(std::int32_t start) {
  return {_mm256_set1_epi32(start)};
}
inline PlaneSum plane_dot(PlaneSum sum, Quads w, const std::int8_t* q, int quad) {
  std::int32_t four;
  __builtin_memcpy(&four, q + 4 * quad, sizeof four);
  __m256i words = _mm256_add_epi16(sum.v, _mm256_maddubs_epi16(w.v, _mm256_set1_epi32(four)));
  __asm__("" : "+x"(words));  // as add_now
  return {words};
}

// The scale of each group, twice in a row's lane.
struct GroupScales {
  __m256i group[kGroupsPerBlock];
};
// Of groups 0, 1 and of groups 2, 3 as pairs of words.
inline GroupScales twice(I32V first, I32V second) {
  const __m256i low_twice =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13));
  const __m256i high_twice = _mm256_add_epi8(low_twice, _mm256_set1_epi8(2));
  return {{_mm256_shuffle_epi8(first.v, low_twice), _mm256_shuffle_epi8(first.v, high_twice),
           _mm256_shuffle_epi8(second.v, low_twice), _mm256_shuffle_epi8(second.v, high_twice)}};
}
inline GroupScales ones_as_scales() {
  const __m256i ones = _mm256_set1_epi16(1);
  return {{ones, ones, ones, ones}};
}
inline GroupScales group_scales(const std::uint8_t* p) {
  const __m256i powers = _mm256_broadcastsi128_si256(_mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, static_cast<char>(128),  //
                                                                   0, 0, 0, 0, 0, 0, 0, 0));
  const __m256i seven = _mm256_set1_epi8(7), scales = load_256(p);
  const __m256i mantissa = _mm256_or_si256(_mm256_and_si256(scales, seven), _mm256_set1_epi8(8));
  const __m256i power = _mm256_shuffle_epi8(powers, _mm256_and_si256(_mm256_srli_epi16(scales, 3), seven));
  const __m256i low_bytes = _mm256_set1_epi16(0xFF);
  const __m256i first = _mm256_maddubs_epi16(_mm256_and_si256(power, low_bytes), mantissa);      // groups 0, 1
  const __m256i second = _mm256_maddubs_epi16(_mm256_andnot_si256(low_bytes, power), mantissa);  // groups 2, 3
  return twice({first}, {second});
}
// Sums of groups times their scales.
struct ScaledSum {
  I32V total;
};
inline void add_scaled(ScaledSum& to, PlaneSum sum, const GroupScales& scales, int group) {
  to.total = {_mm256_add_epi32(to.total.v, _mm256_madd_epi16(sum.v, scales.group[group]))};
}
// The unit of each row, biased, of its four digits: what raises the exponent of a float by it.
inline I32V load_unit(const std::uint8_t* p) {
  const __m256i digits = _mm256_and_si256(load_256(p), _mm256_set1_epi8(static_cast<char>(0xC0)));
  const __m256i pairs = _mm256_maddubs_epi16(digits, _mm256_set1_epi32(0x40100401));
  return {_mm256_slli_epi32(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)), 17)};
}

// Codes times the scale of their group as a panel: [4 pairs][8 rows] from each line.
inline void fold_record(const std::uint8_t* record, std::int16_t* panel) {
  const __m256i q1 = _mm256_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12,  //
                                      0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
  const __m256i mask = _mm256_set1_epi8(15);
  const GroupScales scales = group_scales(record + kRecordScales);
#pragma GCC unroll 8
  for (int line = 0; line < 8; ++line) {
    const __m256i codes = load_256(record + kLineBytes * line);
    const __m256i low = _mm256_shuffle_epi8(q1, _mm256_and_si256(codes, mask));
    const __m256i high = _mm256_shuffle_epi8(q1, _mm256_and_si256(_mm256_srli_epi16(codes, 4), mask));
    const __m256i words[4] = {_mm256_srai_epi16(_mm256_slli_epi16(low, 8), 8), _mm256_srai_epi16(low, 8),
                              _mm256_srai_epi16(_mm256_slli_epi16(high, 8), 8), _mm256_srai_epi16(high, 8)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m256i w = _mm256_mullo_epi16(words[i], scales.group[line / 2]);
      _mm256_store_si256(reinterpret_cast<__m256i*>(panel + (4 * line + i) * 2 * kLanes), w);
    }
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu

#include "kernels/cpu/pair_panels.inl"
// after the panels
#include "kernels/cpu/folded_panels.inl"
#include "kernels/cpu/pair_sums.inl"
#if defined(__AVXVNNI__)
#include "kernels/cpu/quant_bytes.inl"
#else
#include "kernels/cpu/quant_words.inl"
#endif
