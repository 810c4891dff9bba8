#include "kernels/cpu/simd_neon.h"
// after the vocabulary
#include "kernels/cpu/kernels.inl"

namespace nibble::kernels::cpu {

const KernelTable kNeonDotTable = make_table(kIsPinned ? "neondot" : "neondot-unpinned");

}  // namespace nibble::kernels::cpu
