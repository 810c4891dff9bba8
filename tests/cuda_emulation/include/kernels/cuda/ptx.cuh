// In place of src/kernels/cuda/ptx.cuh: what its instructions do, for the emulation.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "format/portable.h"
#include "tests/cuda_emulation/matrix.h"

#define NIBBLE_DYNAMIC_SHARED(type, name, align) \
  type* const name = static_cast<type*>(::nibble::cuda_emulation::dynamic_memory())

namespace nibble::kernels::cuda {

namespace emulation = ::nibble::cuda_emulation;
using format::u32;
using u64 = unsigned long long;

inline u32 permute(u32 low, u32 high, u32 selectors) {
  return emulated_prmt(low, high, selectors);
}

template <u32 kMask>
u32 select_bits(u32 a, u32 b) {
  return (a & kMask) | (b & ~kMask);
}
template <u32 kMask>
u32 and_or(u32 a, u32 b) {
  return (a & kMask) | b;
}

inline int dot_unsigned_low(int pair, int bytes, int sum) {
  return emulated_dot2(pair, bytes & 0xFF, bytes >> 8 & 0xFF, sum);
}
inline int dot_unsigned_high(int pair, int bytes, int sum) {
  return emulated_dot2(pair, bytes >> 16 & 0xFF, bytes >> 24 & 0xFF, sum);
}

// A product of two f16 is exact in f32.
inline u32 multiply_halves(u32 a, u32 b) {
  const u32 low = format::f32_to_f16(format::f16_to_f32(a & 0xFFFFu) * format::f16_to_f32(b & 0xFFFFu));
  const u32 high = format::f32_to_f16(format::f16_to_f32(a >> 16) * format::f16_to_f32(b >> 16));
  return high << 16 | low;
}

// Of f16 whose difference is exact in f32, as it is where both are integers.
inline u32 subtract_halves(u32 a, u32 b) {
  const u32 low = format::f32_to_f16(format::f16_to_f32(a & 0xFFFFu) - format::f16_to_f32(b & 0xFFFFu));
  const u32 high = format::f32_to_f16(format::f16_to_f32(a >> 16) - format::f16_to_f32(b >> 16));
  return high << 16 | low;
}

inline void keep(u32&) {}
inline void keep(int&) {}

inline void mma_f16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  emulation::MatrixF16 mine = {c, a, {b0, b1}};
  emulation::meet_warp(emulation::Meeting::kMatrix, emulation::kAllLanes, &mine, emulation::multiply_f16);
}
inline void mma_f16_rounding(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  emulation::MatrixF16 mine = {c, a, {b0, b1}};
  emulation::meet_warp(emulation::Meeting::kMatrix, emulation::kAllLanes, &mine, emulation::multiply_f16_rounding);
}
inline void mma_s8(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  emulation::MatrixS8 mine = {c, a, {b0, b1}};
  emulation::meet_warp(emulation::Meeting::kMatrix, emulation::kAllLanes, &mine, emulation::multiply_s8);
}
inline void mma_s8_k16(int (&c)[4], u32 a0, u32 a1, u32 b) {
  mma_s8(c, {a0, a1, 0, 0}, b, 0);
}
inline void mma_u8_s8(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  emulation::MatrixS8 mine = {c, a, {b0, b1}};
  emulation::meet_warp(emulation::Meeting::kMatrix, emulation::kAllLanes, &mine, emulation::multiply_u8_s8);
}

inline bool has_mma_fp4() {
  return emulation::gpu().capability / 10 == 12;
}
inline void mma_fp4(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, u32 a_scales, u32 b_scales) {
  emulation::MatrixFp4 mine = {c, a, {b0, b1}, a_scales, b_scales};
  emulation::meet_warp(emulation::Meeting::kMatrix, emulation::kAllLanes, &mine, emulation::multiply_fp4);
}

inline u32 shared_address(const void* memory) {
  return emulation::shared_address(memory);
}

template <typename T>
T load_shared(u32 address) {
  return *static_cast<const T*>(emulation::shared_pointer(address, sizeof(T)));
}
inline uint4 load_shared16(u32 address) {
  return load_shared<uint4>(address);
}
inline u64 load_shared8(u32 address) {
  return load_shared<u64>(address);
}
inline u32 load_shared4(u32 address) {
  return load_shared<u32>(address);
}
inline void store_shared4(u32 address, float v) {
  *static_cast<float*>(emulation::shared_pointer(address, sizeof v)) = v;
}
inline void store_shared8(u32 address, float v, float w) {
  *static_cast<float2*>(emulation::shared_pointer(address, sizeof(float2))) = {v, w};
}

inline void copy_4(void* shared, const void* global) {
  emulation::start_copy(shared, global, 4);
}
inline void copy_16(void* shared, const void* global) {
  emulation::start_copy(shared, global, 16);
}
inline void copy_16(u32 shared, const void* global) {
  copy_16(emulation::shared_pointer(shared, 16), global);
}
inline void copy_16_if(bool condition, u32 shared, u64 global) {
  if (condition) copy_16(emulation::shared_pointer(shared, 16), reinterpret_cast<const void*>(global));
}
inline void commit_copies() {
  emulation::commit_copies();
}
template <int kGroups>
void wait_copies() {
  emulation::wait_copies(kGroups);
}
inline int add_acquire_release(int* at, int more) {
  return atomicAdd(at, more);
}
inline void prefetch_to_l2(const void*) {}

inline void barrier_init(u32 barrier, int count) {
  emulation::mbarrier_init(barrier, count);
}
inline void barrier_arrive(u32 barrier) {
  emulation::mbarrier_arrive(barrier, 0);
}
inline void barrier_wait(u32 barrier, u32 parity) {
  emulation::mbarrier_wait(barrier, parity);
}

inline void publish(u32* flag) {
  *flag = 1;
}
inline void wait_until_published(const u32* flag) {
  emulation::wait_for_word(flag);
}

inline void cluster_arrive() {
  emulation::cluster_arrive();
}
inline void cluster_wait() {
  emulation::cluster_wait();
}
inline void wait_for_predecessors() {}  // they have ended: launches run one after another
inline void let_successors_start() {}

}  // namespace nibble::kernels::cuda
