// binary16 and bfloat16 as integers of 16 bits, converted without help of the machine: no flag, no flush mode and no
// instruction set changes a bit.
#pragma once

#include "format/portable.h"

namespace nibble::format {

NIBBLE_FN float f16_to_f32(u32 bits) {
  const u32 sign = (bits & 0x8000u) << 16;
  const u32 exponent = (bits >> 10) & 31u;
  const u32 mantissa = bits & 0x3FFu;
  if (exponent == 31u) return bits_float(sign | 0x7F800000u | (mantissa << 13));
  if (exponent == 0u) return bits_float(sign | float_bits(float(mantissa) * 0x1p-24f));
  return bits_float(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

// Nearest, ties to even; too large becomes infinity; NaN becomes the quiet NaN of its sign.
NIBBLE_FN u16 f32_to_f16(float x) {
  const u32 sign = sign_bit(x) >> 16;
  const u32 m = abs_bits(x);
  if (m > 0x7F800000u) return u16(sign | 0x7E00u);
  if (m >= 0x477FF000u) return u16(sign | 0x7C00u);  // 65520, halfway to 65536
  if (m < 0x38800000u) {                             // below 2^-14 the step is 2^-24, the last place of 0.5
    return u16(sign | ((float_bits(bits_float(m) + 0.5f) - 0x3F000000u) & 0x7FFu));
  }
  const u32 rounded = m + 0xFFFu + ((m >> 13) & 1u);
  return u16(sign | ((rounded >> 13) - (112u << 10)));
}

NIBBLE_FN float bf16_to_f32(u32 bfloat) {
  return bits_float((bfloat & 0xFFFFu) << 16);
}

// Nearest, ties to even; NaN becomes the quiet NaN of its sign.
NIBBLE_FN u16 f32_to_bf16(float x) {
  const u32 bits = float_bits(x);
  if (is_nan(x)) return u16((sign_bit(x) >> 16) | 0x7FC0u);
  return u16((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace nibble::format
