// The vocabulary in plain C++: small arrays in loops that a compiler may or may not vectorize.
#pragma once

#include <cstdint>

#include "format/e2m1.h"
#include "format/half.h"
#include "format/portable.h"

namespace nibble::kernels::cpu {
namespace {

constexpr int kLanes = 4;
constexpr bool kIsAvx2 = false;

struct F32V {
  float v[kLanes];
};
struct I32V {
  std::int32_t v[kLanes];
};
struct I16x32 {
  std::int16_t v[32];
};
using Partial = std::int32_t;  // one row's dot product

inline F32V f32_set1(float x) {
  return {{x, x, x, x}};
}
inline F32V f32_load(const float* p) {
  F32V out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = p[i];
  return out;
}
inline void f32_store(float* p, F32V a) {
  for (int i = 0; i < kLanes; ++i) p[i] = a.v[i];
}
inline F32V operator+(F32V a, F32V b) {
  for (int i = 0; i < kLanes; ++i) a.v[i] = a.v[i] + b.v[i];
  return a;
}
inline F32V operator*(F32V a, F32V b) {
  for (int i = 0; i < kLanes; ++i) a.v[i] = a.v[i] * b.v[i];
  return a;
}
inline F32V f32_fma(F32V a, F32V b, F32V c) {
  for (int i = 0; i < kLanes; ++i) c.v[i] = format::fma_rn(a.v[i], b.v[i], c.v[i]);
  return c;
}
inline F32V f32_from(I32V a) {
  F32V out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = static_cast<float>(a.v[i]);
  return out;
}
// 2^(byte - 127) per lane.
inline F32V f32_load_pow2(const std::uint8_t* p) {
  F32V out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = format::bits_float(static_cast<format::u32>(p[i]) << 23);
  return out;
}
inline F32V f32_load_f16(const std::uint16_t* p) {
  F32V out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = format::f16_to_f32(p[i]);
  return out;
}

inline I32V i32_zero() {
  return {{0, 0, 0, 0}};
}
inline I32V operator+(I32V a, I32V b) {
  for (int i = 0; i < kLanes; ++i) a.v[i] += b.v[i];
  return a;
}

inline I16x32 i16_load(const std::int16_t* p) {
  I16x32 out;
  for (int i = 0; i < 32; ++i) out.v[i] = p[i];
  return out;
}
inline I16x32 operator*(I16x32 a, I16x32 b) {
  for (int i = 0; i < 32; ++i) a.v[i] = static_cast<std::int16_t>(a.v[i] * b.v[i]);
  return a;
}
inline I16x32 i16_from_i8(const std::int8_t* p) {
  I16x32 out;
  for (int i = 0; i < 32; ++i) out.v[i] = p[i];
  return out;
}
inline std::int32_t dot_32(const std::int16_t* a, const std::int16_t* b) {
  std::int32_t sum = 0;
  for (int i = 0; i < 32; ++i) sum += a[i] * b[i];
  return sum;
}
inline Partial dot(Partial acc, const I16x32& a, const I16x32& b) {
  return acc + dot_32(a.v, b.v);
}

// 32 bytes of codes to q1: low nibbles (even elements) and high nibbles.
inline void decode_codes(const std::uint8_t* p, I16x32& even, I16x32& odd) {
  static constexpr std::int16_t kQ1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  for (int i = 0; i < 32; ++i) {
    even.v[i] = kQ1[p[i] & 15];
    odd.v[i] = kQ1[p[i] >> 4];
  }
}
// Four group scales, each repeated over the eight words of its group.
inline I16x32 expand_scales(const std::int16_t* p) {
  I16x32 out;
  for (int i = 0; i < 32; ++i) out.v[i] = p[i / 8];
  return out;
}

// The integer nearest to a value of magnitude < 2^22 that is a product with a power of two, so exact: no fma is needed.
inline std::int16_t i16_nearest(float x) {
  return static_cast<std::int16_t>(format::float_bits(x + 12582912.0F) - 0x4B400000U);
}
// rne(value * scale), scale a power of two.
inline I16x32 i16_from_f16(const std::uint16_t* p, float scale) {
  I16x32 out;
  for (int i = 0; i < 32; ++i) out.v[i] = i16_nearest(format::f16_to_f32(p[i]) * scale);
  return out;
}
inline I16x32 i16_from_bf16(const std::uint16_t* p, float scale) {
  I16x32 out;
  for (int i = 0; i < 32; ++i) out.v[i] = i16_nearest(format::bf16_to_f32(p[i]) * scale);
  return out;
}

inline I32V sum_rows(const Partial* p) {
  I32V out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = p[i];
  return out;
}

// Packed rows stay rows: [kLanes, 32].
inline void pack_rows(const I16x32* rows, std::int16_t* packed) {
  for (int r = 0; r < kLanes; ++r) __builtin_memcpy(packed + 32 * r, rows[r].v, sizeof rows[r].v);
}
// sums[t] += 32 columns of kLanes packed rows times the integers of token t at q + 64 t.
template <int kTokens>
inline void dot_packed(const std::int16_t* packed, const std::int16_t* q, I32V* sums) {
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < kLanes; ++r) sums[t].v[r] += dot_32(packed + 32 * r, q + 64 * t);
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu
