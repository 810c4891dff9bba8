// The elementary functions of docs/contract.md, section 6, from fma, +, lone *, / and exponent bits only.
#pragma once

#include "format/portable.h"

namespace nibble::format {

NIBBLE_CONSTANT float kLog2E = 0x1.715476p+0f;

// The integer nearest to the exact product x * s, ties to even, for |x * s| <= 2^21.6. Adding 1.5 * 2^23 leaves the
// integer in the last places of the sum, and the fma rounds only once.
NIBBLE_FN_RUNTIME int rne(float x, float s) {
  return int(float_bits(fma_rn(x, s, 12582912.0f)) - 0x4B400000u);
}

// 2^n for -126 <= n <= 127.
NIBBLE_FN float pow2(int n) {
  return bits_float(u32(n + 127) << 23);
}

// p * 2^n by the exponent bits: exact, for p and result normal.
NIBBLE_FN float scale_by_pow2(float p, int n) {
  return bits_float(float_bits(p) + (u32(n) << 23));
}

// 2^f on [-1/2, 1/2], exactly 1 at 0. Minimax of the relative error under P(0) = 1, coefficients rounded to f32 and
// searched around; with its roundings the largest relative error over every f32 of the interval is 2^-22.60.
NIBBLE_FN_RUNTIME float exp2_poly(float f) {
  float p = 0x1.5bda40p-10f;
  p = fma_rn(p, f, 0x1.3ce8acp-7f);
  p = fma_rn(p, f, 0x1.c6b6d8p-5f);
  p = fma_rn(p, f, 0x1.ebf9c2p-3f);
  p = fma_rn(p, f, 0x1.62e42ap-1f);
  return fma_rn(p, f, 1.0f);
}

// 2^(x * c) for |x * c| <= 126. NaN gives NaN.
NIBBLE_FN_RUNTIME float exp2_scaled(float x, float c) {
  const int n = rne(x, c);
  const float f = fma_rn(x, c, -float(n));
  return is_nan(x) ? x : scale_by_pow2(exp2_poly(f), n);
}

// x within [-limit, limit]; NaN stays NaN.
NIBBLE_FN float clamp_abs(float x, float limit) {
  return x > limit ? limit : x < -limit ? -limit : x;
}

NIBBLE_FN_RUNTIME float sigmoid(float x) {
  return div_rn(1.0f, 1.0f + exp2_scaled(clamp_abs(x, 87.0f), -kLog2E));
}

NIBBLE_FN_RUNTIME float silu(float x) {
  return div_rn(x, 1.0f + exp2_scaled(clamp_abs(x, 87.0f), -kLog2E));
}

// 0.5 x (1 + tanh u) = x / (1 + e^(-2u)), with u = sqrt(2 / pi) * (x + 0.044715 x^3).
NIBBLE_FN_RUNTIME float gelu_tanh(float x) {
  const float u = x * fma_rn(x * x, 0x1.2444f2p-5f, 0x1.988454p-1f);
  return div_rn(x, 1.0f + exp2_scaled(clamp_abs(u, 43.0f), -2.0f * kLog2E));
}

}  // namespace nibble::format
