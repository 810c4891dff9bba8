#include "kernels/cpu/simd_neon.h"
// after the vocabulary
#include "kernels/cpu/kernels.inl"

namespace nibble::kernels::cpu {

const KernelTable kNeonTable = make_table(kIsPinned ? "neon" : "neon-unpinned");

}  // namespace nibble::kernels::cpu
