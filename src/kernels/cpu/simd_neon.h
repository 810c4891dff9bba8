// The vector vocabulary of Armv8-A with Advanced SIMD: 4 lanes of 32 bits. With FEAT_DotProd, dot products of bytes are
// one instruction.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace nibble::kernels::cpu {
namespace {

constexpr int kLanes = 4;
constexpr int kPanelSize = 64 * kLanes;  // int16 of one block of kLanes rows: [64][kLanes rows]
constexpr int kPanelVectors = 4;         // of rows and
constexpr int kPanelTokens = 4;          // tokens whose sums are held in registers
constexpr int kGemvTokens = 1;           // that meet a record as it is read
constexpr int kHeadsAtOnce = 2;          // of attention, that meet keys and values as they are read; 2 or 4
constexpr int kPartsAtOnce = 2;          // of a record, for one token
constexpr bool kIsAvx2 = false;

struct F32V {
  float32x4_t v;
};
struct I32V {
  int32x4_t v;
};
struct I16x32 {
  int16x8_t v[4];
};
using Partial = I32V;  // some lanes whose sum is one row's dot product

inline F32V f32_set1(float x) {
  return {vdupq_n_f32(x)};
}
inline F32V f32_load(const float* p) {
  return {vld1q_f32(p)};
}
inline void f32_store(float* p, F32V a) {
  vst1q_f32(p, a.v);
}
inline F32V operator+(F32V a, F32V b) {
  return {vaddq_f32(a.v, b.v)};
}
inline F32V operator*(F32V a, F32V b) {
  return {vmulq_f32(a.v, b.v)};
}
inline F32V f32_fma(F32V a, F32V b, F32V c) {
  return {vfmaq_f32(c.v, a.v, b.v)};
}
inline F32V f32_from(I32V a) {
  return {vcvtq_f32_s32(a.v)};
}
// 2^(byte - 127) per lane.
inline F32V f32_load_pow2(const std::uint8_t* p) {
  std::uint32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  const uint16x4_t wide = vget_low_u16(vmovl_u8(vcreate_u8(four)));
  return {vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(wide), 23))};
}
inline float32x4_t f32_from_f16(const std::uint16_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
inline F32V f32_load_f16(const std::uint16_t* p) {
  return {f32_from_f16(p)};
}
// To the nearest f16, ties to even, and back.
inline F32V f32_round_to_f16(F32V a) {
  return {vcvt_f32_f16(vcvt_f16_f32(a.v))};
}

inline I32V i32_zero() {
  return {vdupq_n_s32(0)};
}
inline I32V i32_set1(std::int32_t x) {
  return {vdupq_n_s32(x)};
}
inline I32V i32_load_pairs(const void* p) {
  return {vreinterpretq_s32_u8(vld1q_u8(static_cast<const std::uint8_t*>(p)))};
}
inline I32V operator+(I32V a, I32V b) {
  return {vaddq_s32(a.v, b.v)};
}
inline I32V operator&(I32V a, I32V b) {
  return {vandq_s32(a.v, b.v)};
}
// x times a power of two that keeps it normal, given as what to add to its exponent; finite and positive if x is zero.
inline F32V f32_raise(F32V x, I32V exponent) {
  return {vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x.v), exponent.v))};
}
inline I32V i32_times_8(I32V a) {
  return {vshlq_n_s32(a.v, 3)};
}
// acc + w0 * q0 + w1 * q1 per lane, each lane of w and q being two int16.
inline I32V pair_dot(I32V acc, I32V w, I32V q) {
  const int16x8_t a = vreinterpretq_s16_s32(w.v), b = vreinterpretq_s16_s32(q.v);
  return {vaddq_s32(acc.v, vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b)))};
}
#if defined(__ARM_FEATURE_DOTPROD)
// acc + the four bytes of each lane of w times quad `quad` of those at q. Quads are lanes of one load of four of them.
inline int32x4_t dot_bytes(int32x4_t acc, int8x16_t w, const std::int8_t* q, int quad) {
  const int8x16_t four = vld1q_s8(q + 16 * (quad / 4));
  switch (quad % 4) {  // a constant where this is inlined
    case 0:
      return vdotq_laneq_s32(acc, w, four, 0);
    case 1:
      return vdotq_laneq_s32(acc, w, four, 1);
    case 2:
      return vdotq_laneq_s32(acc, w, four, 2);
    default:
      return vdotq_laneq_s32(acc, w, four, 3);
  }
}
#endif
// acc + the four bytes of each lane of w, unsigned and below 64, times quad `quad` of the signed ones at q.
inline I32V quad_dot(I32V acc, I32V w, const std::int8_t* q, int quad) {
  const int8x16_t codes = vreinterpretq_s8_s32(w.v);
#if defined(__ARM_FEATURE_DOTPROD)
  return {dot_bytes(acc.v, codes, q, quad)};
#else
  std::int32_t four;
  __builtin_memcpy(&four, q + 4 * quad, sizeof four);
  const int8x16_t all = vreinterpretq_s8_s32(vdupq_n_s32(four));
  const int16x8_t low = vmull_s8(vget_low_s8(codes), vget_low_s8(all)), high = vmull_high_s8(codes, all);
  return {vaddq_s32(acc.v, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)))};
#endif
}
// acc + the four bytes of each lane of w, within -127..127, times four of 0..127.
inline I32V weigh_quads(I32V acc, I32V w, const std::int8_t* q) {
  std::int32_t four;
  __builtin_memcpy(&four, q, sizeof four);
  const int8x16_t values = vreinterpretq_s8_s32(w.v), all = vreinterpretq_s8_s32(vdupq_n_s32(four));
#if defined(__ARM_FEATURE_DOTPROD)
  return {vdotq_s32(acc.v, values, all)};
#else
  const int16x8_t low = vmull_s8(vget_low_s8(values), vget_low_s8(all)), high = vmull_high_s8(values, all);
  return {vaddq_s32(acc.v, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)))};
#endif
}
// A sum of pairs on its way, which total() ends: the products of a pair stay apart until then.
struct PairSum {
  int32x4_t low, high;  // of rows 0, 1 and 2, 3
};
inline PairSum pair_sum_zero() {
  return {vdupq_n_s32(0), vdupq_n_s32(0)};
}
inline PairSum add_pairs(PairSum sum, I32V w, I32V q) {
  const int16x8_t a = vreinterpretq_s16_s32(w.v), b = vreinterpretq_s16_s32(q.v);
  return {vmlal_s16(sum.low, vget_low_s16(a), vget_low_s16(b)), vmlal_high_s16(sum.high, a, b)};
}
inline I32V total(PairSum sum) {
  return {vpaddq_s32(sum.low, sum.high)};
}
inline void i32_store(std::int32_t* p, I32V a) {
  vst1q_s32(p, a.v);
}
inline I32V pair_set1(const std::int16_t* p) {
  std::int32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return {vdupq_n_s32(pair)};
}

inline I16x32 i16_load(const std::int16_t* p) {
  return {{vld1q_s16(p), vld1q_s16(p + 8), vld1q_s16(p + 16), vld1q_s16(p + 24)}};
}
inline Partial dot(Partial acc, I16x32 a, I16x32 b) {
  int32x4_t sum = acc.v;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    sum = vmlal_s16(sum, vget_low_s16(a.v[i]), vget_low_s16(b.v[i]));
    sum = vmlal_high_s16(sum, a.v[i], b.v[i]);
  }
  return {sum};
}

// --- records: a lane is a row ---

// Four int8 a row, elements 0, 2, 1, 3, as the pairs 0, 1 and 2, 3.
inline void split_quads(const std::uint8_t* p, I32V& first, I32V& second) {
  const int16x8_t four = vreinterpretq_s16_u8(vld1q_u8(p));
  first = {vreinterpretq_s32_s16(vshrq_n_s16(vshlq_n_s16(four, 8), 8))};
  second = {vreinterpretq_s32_s16(vshrq_n_s16(four, 8))};
}

// --- records of FP8 (linear_fp8.inl): a byte is exponent << 4 | sign << 3 | mantissa ---

// Words times 2^(exponent - bias) where `is_kept`, otherwise zeros; of the bytes at even and at odd places.
inline void fp8_shift(int8x16_t mantissa, uint8x16_t exponent, int bias, uint8x16_t is_kept, I32V& first,
                      I32V& second) {
  const int16x8_t m = vreinterpretq_s16_s8(vandq_s8(mantissa, vreinterpretq_s8_u8(is_kept)));
  const uint16x8_t e = vreinterpretq_u16_u8(exponent);
  const int16x8_t zero = vdupq_n_s16(0), from = vdupq_n_s16(static_cast<std::int16_t>(bias));
  const int16x8_t e0 = vreinterpretq_s16_u16(vandq_u16(e, vdupq_n_u16(15)));
  const int16x8_t e1 = vreinterpretq_s16_u16(vshrq_n_u16(e, 8));
  const int16x8_t m0 = vshrq_n_s16(vshlq_n_s16(m, 8), 8), m1 = vshrq_n_s16(m, 8);
  first = {vreinterpretq_s32_s16(vshlq_s16(m0, vmaxq_s16(vsubq_s16(e0, from), zero)))};
  second = {vreinterpretq_s32_s16(vshlq_s16(m1, vmaxq_s16(vsubq_s16(e1, from), zero)))};
}
inline int8x16_t fp8_mantissas(uint8x16_t codes) {
  const int8x16_t mantissa = {8, 9, 10, 11, 12, 13, 14, 15, -8, -9, -10, -11, -12, -13, -14, -15};
  return vqtbl1q_s8(mantissa, vandq_u8(codes, vdupq_n_u8(15)));
}
inline uint8x16_t fp8_small_mask(uint8x16_t codes) {
  return vcltq_u8(codes, vdupq_n_u8(kFp8LargeExponent << 4));
}
// Four weights a row, as split_quads: those of exponent 4 and more, without the last three bits; zeros for others.
inline void fp8_large(const std::uint8_t* p, I32V& first, I32V& second) {
  const uint8x16_t codes = vld1q_u8(p);
  fp8_shift(fp8_mantissas(codes), vshrq_n_u8(codes, 4), kFp8LargeExponent, vmvnq_u8(fp8_small_mask(codes)), first,
            second);
}
// The weights of smaller exponents, zeros for others.
inline void fp8_small(const std::uint8_t* p, I32V& first, I32V& second) {
  const int8x16_t subnormal = {0, 1, 2, 3, 4, 5, 6, 7, 0, -1, -2, -3, -4, -5, -6, -7};
  const uint8x16_t codes = vld1q_u8(p), exponent = vshrq_n_u8(codes, 4);
  const int8x16_t without = vqtbl1q_s8(subnormal, vandq_u8(codes, vdupq_n_u8(15)));
  const int8x16_t mantissa = vbslq_s8(vceqzq_u8(exponent), without, fp8_mantissas(codes));
  fp8_shift(mantissa, exponent, 1, fp8_small_mask(codes), first, second);
}

// --- panels: a half of a vector is an element of all rows, so that products are added without a pairwise step ---

// Pair `pair` of all rows to a panel.
inline void store_pairs(std::int16_t* panel, int pair, I32V words) {
  const uint8x16_t first_then_second = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};
  const int8x16_t elements = vqtbl1q_s8(vreinterpretq_s8_s32(words.v), first_then_second);
  vst1q_s16(panel + pair * 2 * kLanes, vreinterpretq_s16_s8(elements));
}
// sum + the two elements of each row in w times pair `pair` of the four in q.
inline int32x4_t add_pair(int32x4_t sum, int16x8_t w, int16x8_t q, int pair) {
  const int16x4_t first = vget_low_s16(w);
  switch (pair) {  // a constant where this is inlined
    case 0:
      return vmlal_high_laneq_s16(vmlal_laneq_s16(sum, first, q, 0), w, q, 1);
    case 1:
      return vmlal_high_laneq_s16(vmlal_laneq_s16(sum, first, q, 2), w, q, 3);
    case 2:
      return vmlal_high_laneq_s16(vmlal_laneq_s16(sum, first, q, 4), w, q, 5);
    default:
      return vmlal_high_laneq_s16(vmlal_laneq_s16(sum, first, q, 6), w, q, 7);
  }
}
// sums[t][v] += the first kPairs pairs of panel v times the integers of token t at q + 64 t.
template <int kPairs, int kVectors, int kTokens>
inline void dot_panels(const std::int16_t* panels, const std::int16_t* q, I32V (&sums)[kTokens][kVectors]) {
  for (int first = 0; first < kPairs; first += 4) {
    int16x8_t eight[kTokens];
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) eight[t] = vld1q_s16(q + 64 * t + 2 * first);
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const int16x8_t w = vld1q_s16(panels + v * kPanelSize + (first + pair) * 2 * kLanes);
#pragma GCC unroll 16
        for (int t = 0; t < kTokens; ++t) sums[t][v] = {add_pair(sums[t][v].v, w, eight[t], pair)};
      }
    }
  }
}

// --- records of NVFP4 (nvfp4_tiles.h) ---

// Four weights of each row.
struct Quads {
  int8x16_t v;
};
inline void decode_quads(const std::uint8_t* p, Quads& low, Quads& high) {
  const int8x16_t q1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const uint8x16_t codes = vld1q_u8(p);
  low = {vqtbl1q_s8(q1, vandq_u8(codes, vdupq_n_u8(15)))};
  high = {vqtbl1q_s8(q1, vshrq_n_u8(codes, 4))};
}

#if defined(__ARM_FEATURE_DOTPROD)
// Sum of a group over one plane.
struct PlaneSum {
  int32x4_t v;
};
inline PlaneSum plane_sum(std::int32_t) {
  return {vdupq_n_s32(0)};
}
inline PlaneSum plane_dot(PlaneSum sum, Quads w, const std::int8_t* q, int quad) {
  return {dot_bytes(sum.v, w.v, q, quad)};
}
inline int32x4_t i32_from(PlaneSum sum) {
  return sum.v;
}
#else
// Sum of a group over one plane, as four words a row: |word| <= 4 * 12 * 128.
struct PlaneSum {
  int16x8_t low, high;  // of rows 0, 1 and 2, 3
};
inline PlaneSum plane_sum(std::int32_t) {
  return {vdupq_n_s16(0), vdupq_n_s16(0)};
}
inline PlaneSum plane_dot(PlaneSum sum, Quads w, const std::int8_t* q, int quad) {
  std::int32_t four;
  __builtin_memcpy(&four, q + 4 * quad, sizeof four);
  const int8x16_t all = vreinterpretq_s8_s32(vdupq_n_s32(four));
  return {vmlal_s8(sum.low, vget_low_s8(w.v), vget_low_s8(all)), vmlal_high_s8(sum.high, w.v, all)};
}
inline int32x4_t i32_from(PlaneSum sum) {
  return vpaddq_s32(vpaddlq_s16(sum.low), vpaddlq_s16(sum.high));
}
#endif
inline std::int32_t plane_start(const std::int8_t*) {
  return 0;
}

struct GroupScales {
  int32x4_t group[kGroupsPerBlock];
};
inline int32x4_t scales_of(uint32x4_t bytes) {
  const int32x4_t mantissa = vreinterpretq_s32_u32(vorrq_u32(vandq_u32(bytes, vdupq_n_u32(7)), vdupq_n_u32(8)));
  return vshlq_s32(mantissa, vreinterpretq_s32_u32(vandq_u32(vshrq_n_u32(bytes, 3), vdupq_n_u32(7))));
}
inline GroupScales group_scales(const std::uint8_t* p) {
  const uint32x4_t rows = vreinterpretq_u32_u8(vld1q_u8(p));
  return {{scales_of(rows), scales_of(vshrq_n_u32(rows, 16)), scales_of(vshrq_n_u32(rows, 8)),
           scales_of(vshrq_n_u32(rows, 24))}};
}
// Sums of groups times their scales.
struct ScaledSum {
  I32V total;
};
inline void add_scaled(ScaledSum& to, PlaneSum sum, const GroupScales& scales, int group) {
  to.total = {vmlaq_s32(to.total.v, i32_from(sum), scales.group[group])};
}
// The unit of each row, biased, of its four digits: what raises the exponent of a float by it.
inline I32V load_unit(const std::uint8_t* p) {
  const uint32x4_t rows = vreinterpretq_u32_u8(vld1q_u8(p)), three = vdupq_n_u32(3);
  uint32x4_t exponent = vandq_u32(vshrq_n_u32(rows, 6), three);
  exponent = vaddq_u32(exponent, vshlq_n_u32(vandq_u32(vshrq_n_u32(rows, 14), three), 2));
  exponent = vaddq_u32(exponent, vshlq_n_u32(vandq_u32(vshrq_n_u32(rows, 22), three), 4));
  exponent = vaddq_u32(exponent, vshlq_n_u32(vshrq_n_u32(rows, 30), 6));
  return {vreinterpretq_s32_u32(vshlq_n_u32(exponent, 23))};
}

// Codes times the scale of their group as a panel: eight elements from each line.
inline void fold_record(const std::uint8_t* record, std::int16_t* panel) {
  const GroupScales scales = group_scales(record + kRecordScales);
#pragma GCC unroll 8
  for (int line = 0; line < 8; ++line) {
    Quads half[2];
    decode_quads(record + kLineBytes * line, half[0], half[1]);
    const int32x4_t scale = scales.group[line / 2];
    const int16x8_t twice = vreinterpretq_s16_s32(vsliq_n_s32(scale, scale, 16));
#pragma GCC unroll 2
    for (int z = 0; z < 2; ++z) {
      const int16x8_t words = vreinterpretq_s16_s8(half[z].v);
      const int pair = 4 * line + 2 * z;
      const int16x8_t even = vshrq_n_s16(vshlq_n_s16(words, 8), 8), odd = vshrq_n_s16(words, 8);
      store_pairs(panel, pair, {vreinterpretq_s32_s16(vmulq_s16(even, twice))});
      store_pairs(panel, pair + 1, {vreinterpretq_s32_s16(vmulq_s16(odd, twice))});
    }
  }
}

// --- panels of codes, and of whatever else has 16 bytes ---

constexpr int kCodeBytes = 64 * kLanes;  // of a panel, before its scales

inline void store_bytes(std::uint8_t* p, int8x16_t bytes) {
  vst1q_u8(p, vreinterpretq_u8_s8(bytes));
}
inline void store_words(std::uint8_t* p, int32x4_t words) {
  vst1q_u8(p, vreinterpretq_u8_s32(words));
}
inline int32x4_t load_words(const std::uint8_t* p) {
  return vreinterpretq_s32_u8(vld1q_u8(p));
}
inline int8x16_t load_bytes(const std::uint8_t* p) {
  return vreinterpretq_s8_u8(vld1q_u8(p));
}

}  // namespace
}  // namespace nibble::kernels::cpu

#if defined(__ARM_FEATURE_MATMUL_INT8)
#include "kernels/cpu/code_panels_mm.inl"
#elif defined(__ARM_FEATURE_DOTPROD)
#include "kernels/cpu/code_panels_dot.inl"
#else
#include "kernels/cpu/folded_panels.inl"
#endif
#include "kernels/cpu/quant_bytes.inl"
