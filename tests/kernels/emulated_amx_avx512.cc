#include "kernels/cpu/bf16_avx512.h"
// after the vocabulary
#include "kernels/cpu/kernels.inl"
// after the kernels
#include "kernels/cpu/gemm_amx.inl"
#include "tests/kernels/emulated_amx.h"
#include "tests/kernels/emulated_tiles.h"

namespace nibble::kernels::cpu {

const EmulatedAmx kEmulatedAmxAvx512 = {linear_nvfp4_tiles<EmulatedTiles>, sizeof(TileScratch) / sizeof(float)};

}  // namespace nibble::kernels::cpu
