// What the NVFP4 linear kernels share: the packed layout of weights, the decoder, and the instructions of the tensor
// core, of asynchronous copies and of barriers.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "format/nc1.h"
#include "kernels/cuda/linear_nvfp4.h"

namespace nibble::kernels::cuda::nvfp4 {

using format::u32;
using u64 = unsigned long long;

constexpr int kWarp = 32;
constexpr u32 kAllLanes = 0xFFFFFFFFu;
constexpr int kBlock = format::nc1::kBlock;

// --- the packed layout ---
//
// A tile is 16 rows, a pair two blocks of 64 along K. A unit holds a pair of a tile in the order in which the 32 lanes
// of a warp feed it to m16n8k16 as the A operand: [2 blocks, 32 lanes, 4 steps of k16] words of eight codes, then
// [8 lanes, 4] words of four scales. A layer is [n_tiles, n_pairs] units, a byte per tile that is 1 where the tile
// takes the exact route, the number of such tiles, and the list of them.

constexpr int kTileRows = 16;
constexpr int kBlockCodeBytes = kTileRows * kBlock / 2;
constexpr int kUnitCodeBytes = 2 * kBlockCodeBytes;
constexpr int kUnitBytes = kUnitCodeBytes + kTileRows * 8;

// The row of a tile that is row m of the matrix instruction; m and m + 8 belong to one lane and are kLaneRows apart.
// Where decoded rows go to shared memory for wgmma, they go to `shared_row`: then a thread's outputs are four
// neighbours, and 16-byte stores of a warp meet no bank twice.
constexpr int kLaneRows = 4;
__host__ __device__ constexpr int tile_row(int m) {
  return (m >> 1 & 3) | (m & 1) << 3 | (m & 8) >> 1;
}
__host__ __device__ constexpr int shared_row(int row) {
  return (row & 2) << 2 | row >> 2 << 1 | (row & 1);
}

struct Layout {
  int n_tiles;
  int n_pairs;
  std::size_t exact_flags;  // offsets in bytes
  std::size_t exact_count;
  std::size_t exact_list;
  std::size_t bytes;
};
__host__ __device__ constexpr Layout layout_of(int n_out, int n_in) {
  constexpr std::size_t kAlign = 256;
  const int n_tiles = (n_out + kTileRows - 1) / kTileRows, n_pairs = nvfp4_padded_inputs(n_in) / kNvfp4Pair;
  const std::size_t units = static_cast<std::size_t>(n_tiles) * n_pairs * kUnitBytes;
  const std::size_t flags = (units + kAlign - 1) / kAlign * kAlign;
  const std::size_t count = (flags + n_tiles + kAlign - 1) / kAlign * kAlign;
  const std::size_t list = count + kAlign;
  return {n_tiles, n_pairs, flags, count, list, list + sizeof(int) * n_tiles};
}

// Where the eight codes of a word lie. In each half of the word, the code for register r of the A operand has its sign
// and its magnitude at these bits; the low half is the even position of the register, the high half the odd one.
// The layout makes f16 patterns fall out in nine instructions, six of them on the integer pipe.
__host__ __device__ constexpr u32 place_code(int r, u32 code) {
  constexpr int kSign[4] = {15, 7, 8, 0}, kMagnitude[4] = {9, 1, 12, 4};
  return (code >> 3) << kSign[r] | (code & 7u) << kMagnitude[r];
}

// Four registers of two f16 each: the decoded code times 2^-14.
__device__ inline void decode(u32 word, u32 (&a)[4]) {
  constexpr u32 kHalves = 0x8E008E00u, kMagnitudes = 0x0E0E0E0Eu;
  a[0] = word & kHalves;
  a[1] = (word << 8) & kHalves;
  const u32 moved = ((word >> 3) & kMagnitudes) | ((word << 7) & ~kMagnitudes);
  a[2] = moved & kHalves;
  a[3] = (moved << 8) & kHalves;
}

// A packed scale is the upper half of the f16 of scale * 2^7, without the sign, which the codes have taken over:
// five bits of exponent, three of mantissa, never subnormal.
__host__ __device__ constexpr u32 pack_scale(u32 e4m3) {
  const u32 exponent = e4m3 >> 3 & 15u, mantissa = e4m3 & 7u;
  if (exponent != 0) return (exponent + 15) << 3 | mantissa;
  if (mantissa == 0) return 0;
  if (mantissa == 1) return 13u << 3;
  if (mantissa < 4) return 14u << 3 | (mantissa & 1u) << 2;
  return 15u << 3 | (mantissa & 3u) << 1;
}

// Two f16: the scales at bytes kFirst and kFirst + 1 of a word of scales, times 2^7.
template <int kFirst>
__device__ inline u32 scale_pair(u32 scales) {
  return __byte_perm(scales, 0, kFirst == 0 ? 0x1404 : 0x3424) >> 1;
}

// The scale at byte i as f32, times 2^-9. A scale of zero comes out as another number; its codes are zero.
template <int i>
__device__ inline float scale_f32(u32 scales) {
  constexpr u32 kMask = 0x0FF00000u, kExponent = 0x30000000u;
  constexpr int kAndOr = 0xEA;  // (a & b) | c, which the compiler would rather do in two
  const u32 moved = i < 3 ? scales << (20 - 8 * i) : scales >> 4;
  u32 bits;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(bits) : "r"(moved), "n"(kMask), "r"(kExponent), "n"(kAndOr));
  return __uint_as_float(bits);
}

// The sum of a block of value * q, value = code * scale, comes out of the matrix unit times 2^-7, that is 2^-17 in the
// integers of the contract; the factor of the fma takes that up.
constexpr float kSumUnit = 0x1p17f;

__device__ inline u32 multiply_halves(u32 a, u32 b) {
  u32 product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// Folds scales into a decoded word: `low` belongs to rows m < 8 of the instruction, `high` to the others.
__device__ inline void fold_scales(u32 (&a)[4], u32 low, u32 high) {
  a[0] = multiply_halves(a[0], low);
  a[1] = multiply_halves(a[1], high);
  a[2] = multiply_halves(a[2], low);
  a[3] = multiply_halves(a[3], high);
}

// d += a * b on 16 x 16 and 16 x 8.
__device__ inline void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// --- shared memory, asynchronous copies, barriers ---

__device__ inline u32 shared_address(const void* p) {
  return static_cast<u32>(__cvta_generic_to_shared(p));
}

__device__ inline uint4 load_shared16(u32 address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address));
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

__device__ inline u64 load_shared8(u32 address) {
  u64 v;
  asm volatile("ld.shared.u64 %0, [%1];" : "=l"(v) : "r"(address));
  return v;
}

// Copies 16 bytes if the condition holds.
__device__ inline void copy_async16_if(bool condition, u32 shared, u64 global) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16;}" ::"r"(shared),
               "l"(global), "r"(static_cast<u32>(condition))
               : "memory");
}
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

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

// Arrives, and lets the phase wait for so many bytes more.
__device__ inline void barrier_expect(u32 barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void copy_bulk(u32 shared, const void* global, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
}
// What ordinary instructions did to shared memory comes before what asynchronous ones do to it.
__device__ inline void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Arrives when the copies that this lane has started are there.
__device__ inline void barrier_arrive_after_copies(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

// The compiler would rather compute a cheap value again in every iteration than keep it.
__device__ inline void keep(u32& value) {
  asm volatile("" : "+r"(value));
}
__device__ inline void keep(int& value) {
  asm volatile("" : "+r"(value));
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

}  // namespace nibble::kernels::cuda::nvfp4
