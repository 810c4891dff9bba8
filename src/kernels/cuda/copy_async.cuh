// Copies from global to shared memory that run on their own (sm_80 and later).
#pragma once

#include "format/portable.h"

namespace nibble::kernels::cuda {

__device__ inline format::u32 shared_address(const void* memory) {
  return static_cast<format::u32>(__cvta_generic_to_shared(memory));
}
__device__ inline void copy_4(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}
__device__ inline void copy_16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
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

}  // namespace nibble::kernels::cuda
