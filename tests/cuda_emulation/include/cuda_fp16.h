// Stand-in for CUDA's header: the few functions of binary16 that the kernels use.
#pragma once

#include "format/half.h"
#include "tests/cuda_emulation/builtins.h"

struct __half {
  unsigned short bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
inline __half __ushort_as_half(unsigned short bits) {
  return {bits};
}
inline float __half2float(__half h) {
  return nibble::format::f16_to_f32(h.bits);
}
inline __half __int2half_rn(int x) {
  return {nibble::format::f32_to_f16(static_cast<float>(x))};
}  // |x| < 2^24
inline __half __float2half_rn(float x) {
  return {nibble::format::f32_to_f16(x)};
}
inline __half2 __halves2half2(__half low, __half high) {
  return {low, high};
}
