// The instructions that CUDA C++ has no word for, one function each. With wgmma_sm90.cuh this is the only file that
// holds assembly: whoever runs the kernels on something else than a GPU replaces these two.
#pragma once

#include "format/portable.h"

namespace nibble::kernels::cuda {

using format::u32;
using u64 = unsigned long long;

// --- integers and halves ---

// __byte_perm ignores the sign bit of its selectors; PRMT itself does not: a byte is then its sign, replicated.
__device__ inline u32 permute(u32 low, u32 high, u32 selectors) {
  u32 bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selectors));
  return bytes;
}

// (a & kMask) | b, which the compiler would rather do in two.
template <u32 kMask>
__device__ inline u32 and_or(u32 a, u32 b) {
  constexpr int kAndOr = 0xEA;
  u32 bits;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(bits) : "r"(a), "n"(kMask), "r"(b), "n"(kAndOr));
  return bits;
}

// (a & kMask) | (b & ~kMask)
template <u32 kMask>
__device__ inline u32 select_bits(u32 a, u32 b) {
  constexpr int kSelect = 0xE4;
  u32 bits;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(bits) : "r"(a), "r"(b), "n"(kMask), "n"(kSelect));
  return bits;
}

// sum + a pair of int16 times two unsigned bytes: the lower two of `bytes`, or the upper two.
__device__ inline int dot_unsigned_low(int pair, int bytes, int sum) {
  asm("dp2a.lo.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(bytes));
  return sum;
}
__device__ inline int dot_unsigned_high(int pair, int bytes, int sum) {
  asm("dp2a.hi.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(bytes));
  return sum;
}

// Two f16 by two f16.
__device__ inline u32 multiply_halves(u32 a, u32 b) {
  u32 product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// Two f16 minus two f16.
__device__ inline u32 subtract_halves(u32 a, u32 b) {
  u32 difference;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
  return difference;
}

// The compiler would rather compute a cheap value again in every iteration than keep it.
__device__ inline void keep(u32& value) {
  asm volatile("" : "+r"(value));
}
__device__ inline void keep(int& value) {
  asm volatile("" : "+r"(value));
}

// --- matrix instructions, by warp; of a fragment, thread 4g + t holds rows g and g + 8 ---

// c [16, 8] += a [16, 16] * b [16, 8]: k of a and b is 2t, 2t + 1 and 2t + 8, 2t + 9.
__device__ inline void mma_f16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The same where sums may round, in an order that only the tensor core knows: of contract `native`.
__device__ inline void mma_f16_rounding(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  mma_f16(c, a, b0, b1);
}
// c [16, 8] += a [16, 32] * b [32, 8]: k is 4t .. 4t + 3 and 16 + those.
__device__ inline void mma_s8(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// c [16, 8] += a [16, 16] * b [16, 8]: k is 4t .. 4t + 3.
__device__ inline void mma_s8_k16(int (&c)[4], u32 a0, u32 a1, u32 b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}

// Whether this is compiled for a GPU with FP4 tensor cores that a warp can use: sm_120a.
__device__ constexpr bool has_mma_fp4() {
#if defined(__CUDA_ARCH_FEAT_SM120_ALL)
  return true;
#else
  return false;
#endif
}
// c [16, 8] += a [16, 64] * b [64, 8] of E2M1 codes, every 16 of K with scales in E4M3 without sign. k of a and b is
// 8t .. 8t + 7 and 32 + those, the first in the lowest bits. A word of scales is of one row or column, its first group
// lowest: of rows g and g + 8 threads 4g and 4g + 1 bring them, of column g thread 4g does. Sums may round.
__device__ inline void mma_fp4(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, u32 a_scales, u32 b_scales) {
#if defined(__CUDA_ARCH_FEAT_SM120_ALL)
  asm("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, {%10}, {0, 0}, {%11}, {0, 0};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(a_scales), "r"(b_scales));
#else
  __trap();  // the host has asked has_mma_fp4 before
#endif
}

// The same with bytes of a that have no sign.
__device__ inline void mma_u8_s8(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// --- shared memory ---

// Declares `name`, the memory that the launch asked for (LaunchShape::shared_bytes). Not a function: of a pointer that
// one returns the compiler knows less, and attention comes out as other code.
#define NIBBLE_DYNAMIC_SHARED(type, name, align) \
  extern __shared__ __align__(align)             \
  type name[]

__device__ inline u32 shared_address(const void* memory) {
  return static_cast<u32>(__cvta_generic_to_shared(memory));
}

__device__ inline uint4 load_shared16(u32 address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address));
  return v;
}
__device__ inline u64 load_shared8(u32 address) {
  u64 v;
  asm volatile("ld.shared.u64 %0, [%1];" : "=l"(v) : "r"(address));
  return v;
}
__device__ inline u32 load_shared4(u32 address) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
  return v;
}
__device__ inline void store_shared4(u32 address, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}
__device__ inline void store_shared8(u32 address, float v, float w) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(v), "f"(w) : "memory");
}

// --- copies from global to shared memory that run on their own ---

__device__ inline void copy_4(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}
__device__ inline void copy_16(u32 shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
__device__ inline void copy_16(void* shared, const void* global) {
  copy_16(shared_address(shared), global);
}
// 16 bytes, if the condition holds.
__device__ inline void copy_16_if(bool condition, u32 shared, u64 global) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16;}" ::"r"(shared),
               "l"(global), "r"(static_cast<u32>(condition))
               : "memory");
}
// Closes a group of copies.
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most so many groups of this thread are on their way.
template <int kGroups>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Orders what this thread and those it has met at a barrier did before and do after it, for the whole GPU.
__device__ inline int add_acquire_release(int* at, int more) {
  int old;
  asm volatile("atom.acq_rel.gpu.add.s32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(more) : "memory");
  return old;
}

__device__ inline void prefetch_to_l2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

// --- barriers in shared memory ---

__device__ inline void barrier_init(u32 barrier, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ inline void barrier_arrive(u32 barrier) {
  asm volatile("{.reg .b64 state; mbarrier.arrive.shared.b64 state, [%0];}" ::"r"(barrier) : "memory");
}
__device__ inline bool barrier_test(u32 barrier, u32 parity) {
  u32 done;
#if __CUDA_ARCH__ >= 900
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
               : "=r"(done)
               : "r"(barrier), "r"(parity)
               : "memory");
#else
  asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
               : "=r"(done)
               : "r"(barrier), "r"(parity)
               : "memory");
#endif
  return done != 0;
}
__device__ inline void barrier_wait(u32 barrier, u32 parity) {
  while (!barrier_test(barrier, parity)) {
  }
}

// --- between thread blocks ---

// A flag in global memory by which a warp tells a warp of another thread block that what it wrote is there.
__device__ inline void publish(u32* flag) {
  asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
}
__device__ inline void wait_until_published(const u32* flag) {
  u32 is_there;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(is_there) : "l"(flag) : "memory");
  } while (is_there == 0);
}

// --- clusters and launches; nothing before sm_90 ---

__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The launch may have started before the kernels ahead of it ended: `wait` for them before touching what they make.
__device__ inline void wait_for_predecessors() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void let_successors_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace nibble::kernels::cuda
