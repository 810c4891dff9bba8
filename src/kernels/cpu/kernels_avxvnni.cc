#include "kernels/cpu/simd_avx2.h"
// after the vocabulary
#include "kernels/cpu/kernels.inl"

namespace nibble::kernels::cpu {

const KernelTable kAvxVnniTable = make_table(kIsPinned ? "avxvnni" : "avxvnni-unpinned");

}  // namespace nibble::kernels::cpu
