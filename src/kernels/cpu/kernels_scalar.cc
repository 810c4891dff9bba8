#include "kernels/cpu/simd_scalar.h"
// after the vocabulary
#include "kernels/cpu/kernels.inl"

namespace nibble::kernels::cpu {

const KernelTable kScalarTable = make_table(kIsPinned ? "scalar" : "scalar-unpinned");

}  // namespace nibble::kernels::cpu
