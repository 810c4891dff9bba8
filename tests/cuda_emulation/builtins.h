// The part of CUDA C++ that the kernels use, as host C++: words of the language, vectors, functions of the device.
#pragma once

#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/cuda_emulation/emulator.h"

// --- words ---

#define __host__
#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
// One block runs at a time, so its shared variables are statics, which the emulator finds in a section of their own.
#define __shared__ static __attribute__((section("nibble_shared"), used))

// --- vectors ---

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}  // NOLINT: as in CUDA
};
struct char2 {
  signed char x, y;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline char2 make_char2(signed char x, signed char y) {
  return {x, y};
}
inline int2 make_int2(int x, int y) {
  return {x, y};
}
inline int4 make_int4(int x, int y, int z, int w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}

extern dim3 threadIdx, blockIdx, blockDim, gridDim;  // NOLINT: as in CUDA

// --- arithmetic ---

inline int min(int a, int b) {
  return a < b ? a : b;
}
inline int max(int a, int b) {
  return a > b ? a : b;
}
inline unsigned min(unsigned a, unsigned b) {
  return a < b ? a : b;
}
inline unsigned max(unsigned a, unsigned b) {
  return a > b ? a : b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
inline float __uint_as_float(unsigned bits) {
  return __builtin_bit_cast(float, bits);
}
inline float __int_as_float(int bits) {
  return __builtin_bit_cast(float, bits);
}
inline int __float_as_int(float x) {
  return __builtin_bit_cast(int, x);
}
inline unsigned __float_as_uint(float x) {
  return __builtin_bit_cast(unsigned, x);
}
inline float __int2float_rn(int x) {
  return static_cast<float>(x);
}
inline float __ll2float_rn(long long x) {
  return static_cast<float>(x);
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline int __ffsll(long long x) {
  return __builtin_ffsll(x);
}

// PRMT: byte i of the result is the byte of high:low that nibble i of the selectors names; its sign, replicated, where
// the nibble's high bit is set. __byte_perm ignores that bit.
inline unsigned emulated_prmt(unsigned low, unsigned high, unsigned selectors) {
  const unsigned long long bytes = static_cast<unsigned long long>(high) << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned nibble = selectors >> (4 * i) & 15u;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (nibble & 7u))) & 0xFFu;
    if ((nibble & 8u) != 0) byte = (byte & 0x80u) != 0 ? 0xFFu : 0u;
    result |= byte << (8 * i);
  }
  return result;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selectors) {
  return emulated_prmt(low, high, selectors & 0x7777u);
}

// A pair of int16 times two signed bytes of four.
inline int emulated_dot2(int pair, int byte0, int byte1, int sum) {
  const int low = static_cast<std::int16_t>(pair), high = static_cast<std::int16_t>(pair >> 16);
  return static_cast<int>(static_cast<unsigned>(sum) + static_cast<unsigned>(low * byte0 + high * byte1));
}
inline int __dp2a_lo(int pair, int bytes, int sum) {
  return emulated_dot2(pair, static_cast<std::int8_t>(bytes), static_cast<std::int8_t>(bytes >> 8), sum);
}
inline int __dp2a_hi(int pair, int bytes, int sum) {
  return emulated_dot2(pair, static_cast<std::int8_t>(bytes >> 16), static_cast<std::int8_t>(bytes >> 24), sum);
}
// Four signed bytes times four.
inline int __dp4a(int a, int b, int sum) {
  for (int shift = 0; shift < 32; shift += 8) {
    const int product = static_cast<std::int8_t>(a >> shift) * static_cast<std::int8_t>(b >> shift);
    sum = static_cast<int>(static_cast<unsigned>(sum) + static_cast<unsigned>(product));
  }
  return sum;
}

// --- memory ---

template <typename T>
T __ldcg(const T* from) {
  return *from;
}
template <typename T>
T __ldcs(const T* from) {
  return *from;
}
inline void __threadfence() {}
inline int atomicAdd(int* at, int more) {
  const int old = *at;
  *at = old + more;
  return old;
}
[[noreturn]] inline void __trap() {
  nibble::cuda_emulation::breach("__trap()");
}

// --- the block and the warp ---

inline void __syncthreads() {
  nibble::cuda_emulation::sync_threads();
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) {
  nibble::cuda_emulation::meet_warp(nibble::cuda_emulation::Meeting::kSync, mask, nullptr, nullptr);
}

namespace nibble::cuda_emulation {

inline int lane_of_thread() {
  return static_cast<int>(threadIdx.x) % kWarp;
}

template <typename T>
struct Brought {
  T value;
  int source;
  T result;
};

template <typename T>
T shuffle(u32 mask, T value, int source) {
  Brought<T> mine = {value, source < 0 || source >= kWarp ? lane_of_thread() : source, {}};
  meet_warp(Meeting::kShuffle, mask, &mine, [](void* const* lanes) {
    for (int i = 0; i < kWarp; ++i) {
      auto& lane = *static_cast<Brought<T>*>(lanes[i]);
      lane.result = static_cast<const Brought<T>*>(lanes[lane.source])->value;
    }
  });
  return mine.result;
}

// All lanes get what combine() makes of all values.
template <typename T, T (*combine)(T, T)>
T reduce(u32 mask, T value) {
  Brought<T> mine = {value, 0, {}};
  meet_warp(Meeting::kReduce, mask, &mine, [](void* const* lanes) {
    T all = static_cast<Brought<T>*>(lanes[0])->value;
    for (int i = 1; i < kWarp; ++i) all = combine(all, static_cast<Brought<T>*>(lanes[i])->value);
    for (int i = 0; i < kWarp; ++i) static_cast<Brought<T>*>(lanes[i])->result = all;
  });
  return mine.result;
}
inline u32 largest_of(u32 a, u32 b) {
  return a > b ? a : b;
}
inline int larger_of(int a, int b) {
  return a > b ? a : b;
}
inline int sum_of(int a, int b) {
  return a + b;
}
inline u32 union_of(u32 a, u32 b) {
  return a | b;
}

}  // namespace nibble::cuda_emulation

template <typename T>
T __shfl_sync(unsigned mask, T value, int source) {
  return nibble::cuda_emulation::shuffle(mask, value, source % 32);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int apart) {
  return nibble::cuda_emulation::shuffle(mask, value, nibble::cuda_emulation::lane_of_thread() ^ apart);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned apart) {
  return nibble::cuda_emulation::shuffle(mask, value,
                                         nibble::cuda_emulation::lane_of_thread() - static_cast<int>(apart));
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned apart) {
  return nibble::cuda_emulation::shuffle(mask, value,
                                         nibble::cuda_emulation::lane_of_thread() + static_cast<int>(apart));
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  return nibble::cuda_emulation::reduce<unsigned, nibble::cuda_emulation::largest_of>(mask, value);
}
inline int __reduce_max_sync(unsigned mask, int value) {
  return nibble::cuda_emulation::reduce<int, nibble::cuda_emulation::larger_of>(mask, value);
}
inline int __reduce_add_sync(unsigned mask, int value) {
  return nibble::cuda_emulation::reduce<int, nibble::cuda_emulation::sum_of>(mask, value);
}
inline unsigned __ballot_sync(unsigned mask, bool vote) {
  const unsigned bit = vote ? 1u << nibble::cuda_emulation::lane_of_thread() : 0u;
  return nibble::cuda_emulation::reduce<unsigned, nibble::cuda_emulation::union_of>(mask, bit);
}
inline bool __any_sync(unsigned mask, bool vote) {
  return __ballot_sync(mask, vote) != 0;
}
inline bool __all_sync(unsigned mask, bool vote) {
  return __ballot_sync(mask, vote) == 0xFFFFFFFFu;
}
