#include "kernels/cpu/simd_avx2.h"
// after the vocabulary
#include "kernels/cpu/kernels.inl"

namespace nibble::kernels::cpu {

const KernelTable kAvx2Table = make_table("avx2");

}  // namespace nibble::kernels::cpu
