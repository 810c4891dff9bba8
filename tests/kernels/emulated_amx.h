// The gemm of gemm_amx.inl on emulated tiles, compiled with a vocabulary that the machine has.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace nibble::kernels::cpu {

struct EmulatedAmx {
  void (*linear_nvfp4)(const Nvfp4Weights&, const Activations&, const LinearJob&);
  std::size_t scratch_floats;
};
extern const EmulatedAmx kEmulatedAmxScalar;
extern const EmulatedAmx kEmulatedAmxAvx512;  // for machines with AVX-512; in builds with NIBBLE_SIMD on x86-64

}  // namespace nibble::kernels::cpu
