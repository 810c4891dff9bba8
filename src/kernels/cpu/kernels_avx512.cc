#include "kernels/cpu/simd_avx512.h"
// after the vocabulary
#include "kernels/cpu/kernels.inl"

namespace nibble::kernels::cpu {

const KernelTable kAvx512Table = make_table(kIsPinned ? "avx512" : "avx512-unpinned");

}  // namespace nibble::kernels::cpu
