// E4M3FN: the 8-bit floats that scale a group of NVFP4 codes. No infinity; 0x7F and 0xFF are NaN; the largest is 448.
#pragma once

#include "format/portable.h"

namespace nibble::format {

NIBBLE_CONSTANT float kE4m3Max = 448.0f;

NIBBLE_FN bool e4m3_is_nan(u32 byte) {
  return (byte & 0x7Fu) == 0x7Fu;
}

// The value in units of 2^-9, a signed integer of at most 229,376. The contract calls it q9. NaN bytes have none: they
// give the integer that their bits would stand for, and are refused before.
NIBBLE_FN int e4m3_x512(u32 byte) {
  const u32 exponent = (byte >> 3) & 15u;
  const u32 mantissa = byte & 7u;
  const int magnitude = exponent == 0 ? int(mantissa) : int((8u + mantissa) << (exponent - 1));
  return (byte & 0x80u) != 0 ? -magnitude : magnitude;
}

NIBBLE_FN float e4m3_decode(u32 byte) {
  if (e4m3_is_nan(byte)) return bits_float(0x7FC00000u | ((byte & 0x80u) << 24));
  const float magnitude = float(e4m3_x512(byte & 0x7Fu)) * 0x1p-9f;
  return bits_float(float_bits(magnitude) | ((byte & 0x80u) << 24));
}

// Nearest byte, ties to the even one; the sign bit is kept. Saturates at 448, infinities too; NaN becomes 0x7F.
NIBBLE_FN u8 e4m3_encode(float x) {
  if (is_nan(x)) return 0x7F;
  const u32 sign = sign_bit(x) >> 24;
  const u32 m = abs_bits(x);
  if (m >= 0x43E00000u) return u8(sign | 0x7Eu);  // 448
  if (m < 0x3C800000u) {                          // below 2^-6 the step is 2^-9, the last place of 2^14
    return u8(sign | (float_bits(bits_float(m) + 16384.0f) & 15u));
  }
  const u32 rounded = m + 0x7FFFFu + ((m >> 20) & 1u);  // to three bits of mantissa
  return u8(sign | ((rounded >> 20) - (120u << 3)));    // exponent bias 127 becomes 7
}

}  // namespace nibble::format
