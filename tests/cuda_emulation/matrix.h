// The matrix units and the bulk copies of the emulation. A sum of products comes out as a NaN unless it is exact in f32
// in whatever order it is added: what a kernel may rely on, where a real tensor core may happen to be kinder.
#pragma once

#include <cuda.h>

#include "tests/cuda_emulation/emulator.h"

namespace nibble::cuda_emulation {

// What a lane brings to mma.sync m16n8k16: fragments.
struct MatrixF16 {
  float (&c)[4];
  const u32 (&a)[4];
  u32 b[2];
};
void multiply_f16(void* const* lanes);
void multiply_f16_rounding(void* const* lanes);  // of sums that promise nothing: every addition rounds

// To m16n8k32 of signed bytes.
struct MatrixS8 {
  int (&c)[4];
  const u32 (&a)[4];
  u32 b[2];
};
void multiply_s8(void* const* lanes);
void multiply_u8_s8(void* const* lanes);  // a without signs

// To m16n8k64 of E2M1 codes with scales in E4M3, which only GPUs of 12.x have: sums round.
struct MatrixFp4 {
  float (&c)[4];
  const u32 (&a)[4];
  u32 b[2];
  u32 a_scales, b_scales;
};
void multiply_fp4(void* const* lanes);

// wgmma of 64 rows, n columns and 16 of K, operands in shared memory, or a in registers: done when it is waited for,
// and operands are read then.
struct Product {
  float* d;  // [n_columns / 2], of this thread
  int n_columns;
  u32 a, b;  // addresses
  bool accumulate;
  bool rounds = false;             // sums that promise nothing
  const u32* registers = nullptr;  // [4]: this thread's fragment of a, as of mma.sync m16n8k16
};
void start_product(const Product& product);
void commit_products();
void wait_products(int most_pending);

// A box of a tensor map, in the 128-byte swizzle; zeros beyond the tensor.
void copy_box(const CUtensorMap& map, int x, int y, u32 shared);
u32 bytes_of_box(const CUtensorMap& map);
void copy_line(u32 shared, const void* global, u32 bytes);

}  // namespace nibble::cuda_emulation
