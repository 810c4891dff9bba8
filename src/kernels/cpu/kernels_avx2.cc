#include "kernels/cpu/simd_avx2.h"
// after the vocabulary
#include "kernels/cpu/kernels.inl"

namespace nibble::kernels::cpu {

const KernelTable kAvx2Table = make_table(kIsPinned ? "avx2" : "avx2-unpinned");

}  // namespace nibble::kernels::cpu
