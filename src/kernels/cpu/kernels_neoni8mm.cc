#include "kernels/cpu/simd_neon.h"
// after the vocabulary
#include "kernels/cpu/kernels.inl"

namespace nibble::kernels::cpu {

const KernelTable kNeonI8mmTable = make_table(kIsPinned ? "neoni8mm" : "neoni8mm-unpinned");

}  // namespace nibble::kernels::cpu
