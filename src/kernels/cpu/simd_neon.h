// The vector vocabulary of Armv8-A with Advanced SIMD: 4 lanes of 32 bits.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace nibble::kernels::cpu {
namespace {

constexpr int kLanes = 4;
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

inline I32V i32_zero() {
  return {vdupq_n_s32(0)};
}
inline I32V i32_load(const std::int32_t* p) {
  return {vld1q_s32(p)};
}
inline I32V operator+(I32V a, I32V b) {
  return {vaddq_s32(a.v, b.v)};
}
// acc + w0 * q0 + w1 * q1 per lane, each lane of w and q being two int16.
inline I32V pair_dot(I32V acc, I32V w, I32V q) {
  const int16x8_t a = vreinterpretq_s16_s32(w.v), b = vreinterpretq_s16_s32(q.v);
  return {vaddq_s32(acc.v, vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b)))};
}
inline I32V pair_set1(const std::int16_t* p) {
  std::int32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return {vdupq_n_s32(pair)};
}

inline I16x32 i16_load(const std::int16_t* p) {
  return {{vld1q_s16(p), vld1q_s16(p + 8), vld1q_s16(p + 16), vld1q_s16(p + 24)}};
}
inline I16x32 operator*(I16x32 a, I16x32 b) {
  return {{vmulq_s16(a.v[0], b.v[0]), vmulq_s16(a.v[1], b.v[1]), vmulq_s16(a.v[2], b.v[2]), vmulq_s16(a.v[3], b.v[3])}};
}
inline I16x32 i16_from_i8(const std::int8_t* p) {
  const int8x16_t a = vld1q_s8(p), b = vld1q_s8(p + 16);
  return {{vmovl_s8(vget_low_s8(a)), vmovl_high_s8(a), vmovl_s8(vget_low_s8(b)), vmovl_high_s8(b)}};
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

// 32 bytes of codes to q1: low nibbles (even elements) and high nibbles.
inline void decode_codes(const std::uint8_t* p, I16x32& even, I16x32& odd) {
  const int8x16_t q1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const uint8x16_t codes = vld1q_u8(p + 16 * i);
    const int8x16_t low = vqtbl1q_s8(q1, vandq_u8(codes, vdupq_n_u8(15)));
    const int8x16_t high = vqtbl1q_s8(q1, vshrq_n_u8(codes, 4));
    even.v[2 * i] = vmovl_s8(vget_low_s8(low));
    even.v[2 * i + 1] = vmovl_high_s8(low);
    odd.v[2 * i] = vmovl_s8(vget_low_s8(high));
    odd.v[2 * i + 1] = vmovl_high_s8(high);
  }
}
// Four group scales, each repeated over the eight words of its group.
inline I16x32 expand_scales(const std::int16_t* p) {
  return {{vdupq_n_s16(p[0]), vdupq_n_s16(p[1]), vdupq_n_s16(p[2]), vdupq_n_s16(p[3])}};
}

inline int16x8_t i16_from_f32(float32x4_t a, float32x4_t b) {
  return vcombine_s16(vmovn_s32(vcvtnq_s32_f32(a)), vmovn_s32(vcvtnq_s32_f32(b)));
}
// rne(value * scale), scale a power of two.
inline I16x32 i16_from_f16(const std::uint16_t* p, float scale) {
  I16x32 out;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    out.v[i] =
        i16_from_f32(vmulq_n_f32(f32_from_f16(p + 8 * i), scale), vmulq_n_f32(f32_from_f16(p + 8 * i + 4), scale));
  }
  return out;
}
inline float32x4_t f32_from_bf16(const std::uint16_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
inline I16x32 i16_from_bf16(const std::uint16_t* p, float scale) {
  I16x32 out;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    out.v[i] =
        i16_from_f32(vmulq_n_f32(f32_from_bf16(p + 8 * i), scale), vmulq_n_f32(f32_from_bf16(p + 8 * i + 4), scale));
  }
  return out;
}

// Lane r of the result is the sum of the lanes of p[r].
inline I32V sum_rows(const Partial* p) {
  return {vpaddq_s32(vpaddq_s32(p[0].v, p[1].v), vpaddq_s32(p[2].v, p[3].v))};
}

// [4 rows][16 pairs] to [16 pairs][4 rows], a pair being 32 bits.
inline void pack_rows(const I16x32* rows, std::int16_t* packed) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    int32x4x4_t four;
    for (int r = 0; r < 4; ++r) four.val[r] = vreinterpretq_s32_s16(rows[r].v[i]);
    vst4q_s32(reinterpret_cast<std::int32_t*>(packed + 32 * i), four);
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu

#include "kernels/cpu/pair_dot.inl"
