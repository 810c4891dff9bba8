// E2M1: the 4-bit floats of NVFP4. The low three bits 0..7 stand for 0, .5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign, and
// 8 is minus zero. Bits above the fourth are ignored.
#pragma once

#include "format/portable.h"

namespace nibble::format {

// The code in halves, a signed integer: 0, 1, 2, 3, 4, 6, 8, 12. The contract calls it q1.
NIBBLE_FN int e2m1_x2(u32 code) {
  const u32 exponent = (code >> 1) & 3u;
  const u32 mantissa = code & 1u;
  const int magnitude = exponent == 0 ? int(mantissa) : int((2u + mantissa) << (exponent - 1));
  return (code & 8u) != 0 ? -magnitude : magnitude;
}

NIBBLE_FN float e2m1_decode(u32 code) {
  const float magnitude = float(e2m1_x2(code & 7u)) * 0.5f;
  return bits_float(float_bits(magnitude) | ((code & 8u) << 28));
}

// Nearest code, ties to the even one; the sign bit is kept. Beyond 6, infinities and NaN become 6.
NIBBLE_FN u8 e2m1_encode(float x) {
  const u32 m = abs_bits(x);                     // compared as integers, so that NaN is the largest
  const u32 magnitude = u32(m > 0x3E800000u)     // 0.25: the tie goes down to 0
                        + u32(m >= 0x3F400000u)  // 0.75: up to 1
                        + u32(m > 0x3FA00000u)   // 1.25
                        + u32(m >= 0x3FE00000u)  // 1.75
                        + u32(m > 0x40200000u)   // 2.5
                        + u32(m >= 0x40600000u)  // 3.5
                        + u32(m > 0x40A00000u);  // 5
  return u8(magnitude | (sign_bit(x) >> 28));
}

}  // namespace nibble::format
