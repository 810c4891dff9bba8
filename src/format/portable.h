// The ground under three compilers: C++ (g++, clang++), CUDA and Metal-like shading languages. The headers of this
// folder are free functions over scalars by value; this is the only one that asks which compiler it is.
#pragma once

// NIBBLE_FN: a function that a host compiler can also evaluate at compile time.
// NIBBLE_FN_RUNTIME: one that calls fma or sqrt, which clang does not evaluate at compile time.
// NIBBLE_CONSTANT: a named constant at namespace scope.
// In host C++ all have internal linkage: a copy compiled for a wide instruction set must never be linked elsewhere.
#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#define NIBBLE_FN inline
#define NIBBLE_FN_RUNTIME inline
#define NIBBLE_CONSTANT static constant constexpr
#elif defined(__OPENCL_CPP_VERSION__)
#define NIBBLE_FN inline
#define NIBBLE_FN_RUNTIME inline
#define NIBBLE_CONSTANT static constexpr __constant
#elif defined(__CUDACC__)
#define NIBBLE_FN __host__ __device__ constexpr
#define NIBBLE_FN_RUNTIME __host__ __device__ inline
#define NIBBLE_CONSTANT static constexpr
#else
#define NIBBLE_FN static constexpr
#define NIBBLE_FN_RUNTIME static inline
#define NIBBLE_CONSTANT static constexpr
#endif

namespace nibble::format {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(float) == 4);

NIBBLE_FN u32 float_bits(float x) {
#if defined(__METAL_VERSION__)
  return as_type<u32>(x);
#elif defined(__OPENCL_CPP_VERSION__)
  return as_uint(x);
#else
  return __builtin_bit_cast(u32, x);
#endif
}

NIBBLE_FN float bits_float(u32 bits) {
#if defined(__METAL_VERSION__)
  return as_type<float>(bits);
#elif defined(__OPENCL_CPP_VERSION__)
  return as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

// a * b + c with one rounding, to nearest even.
NIBBLE_FN_RUNTIME float fma_rn(float a, float b, float c) {
#if defined(__METAL_VERSION__)
  return metal::fma(a, b, c);
#elif defined(__OPENCL_CPP_VERSION__)
  return ::fma(a, b, c);
#elif defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

// Correctly rounded, whatever the flags of the device compiler say.
NIBBLE_FN_RUNTIME float div_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

NIBBLE_FN_RUNTIME float sqrt_rn(float x) {
#if defined(__METAL_VERSION__)
  return metal::precise::sqrt(x);
#elif defined(__OPENCL_CPP_VERSION__)
  return ::sqrt(x);
#elif defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

// The magnitude as an integer. Order of finite values is kept, and NaN lies above everything.
NIBBLE_FN u32 abs_bits(float x) {
  return float_bits(x) & 0x7FFFFFFFu;
}

NIBBLE_FN float abs_value(float x) {
  return bits_float(abs_bits(x));
}

NIBBLE_FN u32 sign_bit(float x) {
  return float_bits(x) & 0x80000000u;
}

// NaN or infinity, by integer comparison (contract, rule 4).
NIBBLE_FN bool is_nonfinite(float x) {
  return abs_bits(x) >= 0x7F800000u;
}

NIBBLE_FN bool is_nan(float x) {
  return abs_bits(x) > 0x7F800000u;
}

}  // namespace nibble::format
