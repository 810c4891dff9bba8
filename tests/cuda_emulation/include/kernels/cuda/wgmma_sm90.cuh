// In place of src/kernels/cuda/wgmma_sm90.cuh, for the emulation.
#pragma once

#include <cuda.h>

#include "kernels/cuda/linear_nvfp4_device.cuh"

namespace nibble::kernels::cuda::nvfp4 {

inline void fence_barrier_init() {}
inline void fence_async_proxy() {}
inline void barrier_expect(u32 barrier, int bytes) {
  emulation::mbarrier_arrive(barrier, static_cast<u32>(bytes));
}
inline void copy_tensor(u32 shared, const CUtensorMap* map, int x, int y, u32 barrier) {
  emulation::start_bulk_copy([=] { emulation::copy_box(*map, x, y, shared); }, barrier, emulation::bytes_of_box(*map));
}
inline void copy_bulk(u32 shared, const void* global, u32 bytes, u32 barrier) {
  if (bytes % 16 != 0 || reinterpret_cast<u64>(global) % 16 != 0) emulation::breach("a bulk copy in pieces of 16");
  emulation::start_bulk_copy([=] { emulation::copy_line(shared, global, bytes); }, barrier, bytes);
}
inline void named_sync(int barrier, int threads) {
  emulation::named_barrier(barrier, threads, true);
}
inline void named_arrive(int barrier, int threads) {
  emulation::named_barrier(barrier, threads, false);
}
inline void store_shared16(u32 address, u32 x, u32 y, u32 z, u32 w) {
  *static_cast<uint4*>(emulation::shared_pointer(address, sizeof(uint4))) = {x, y, z, w};
}
template <int kRegisters>
void lower_registers() {}
template <int kRegisters>
void raise_registers() {}

// The address alone: strides and swizzle of the kernels are always the same (matrix.cc).
inline u64 matrix_descriptor(u32 shared) {
  if (shared % 1024 != 0) emulation::breach("a matrix in the 128-byte swizzle lies at a multiple of 1024");
  return shared >> 4;
}
// The matrix so many bytes further. Of the 64 bits the address has the lower half to itself: no carry.
inline u64 matrix_at(u64 descriptor, u32 bytes) {
  return (descriptor >> 32 << 32) | (static_cast<u32>(descriptor) + (bytes >> 4));
}
inline void wgmma_fence() {}
inline void wgmma_commit() {
  emulation::commit_products();
}
template <int kPending>
void wgmma_wait() {
  emulation::wait_products(kPending);
}
inline void wgmma_keep(float&) {}

template <int kColumns>
struct Wgmma {
  static void multiply(float (&d)[kColumns / 2], u64 a, u64 b, bool accumulate) {
    emulation::start_product({d, kColumns, static_cast<u32>(a) << 4, static_cast<u32>(b) << 4, accumulate});
  }
  static void multiply(float (&d)[kColumns / 2], const u32 (&a)[4], u64 b, bool accumulate) {
    emulation::start_product({d, kColumns, 0, static_cast<u32>(b) << 4, accumulate, false, a});
  }
};

template <int kColumns>
struct RoundingWgmma {
  static void multiply(float (&d)[kColumns / 2], u64 a, u64 b, bool accumulate) {
    emulation::start_product({d, kColumns, static_cast<u32>(a) << 4, static_cast<u32>(b) << 4, accumulate, true});
  }
};

}  // namespace nibble::kernels::cuda::nvfp4
