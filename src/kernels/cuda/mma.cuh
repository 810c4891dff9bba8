// Matrix instructions of sm_80 and later, by warp. Of a fragment, thread 4g + t holds rows g and g + 8.
#pragma once

#include "format/portable.h"

namespace nibble::kernels::cuda {

using format::u32;

// c [16, 8] += a [16, 16] * b [16, 8]: k of a and b is 2t, 2t + 1 and 2t + 8, 2t + 9.
__device__ inline void mma_f16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// c [16, 8] += a [16, 32] * b [32, 8]: k is 4t .. 4t + 3 and 16 + those.
__device__ inline void mma_s8(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace nibble::kernels::cuda
