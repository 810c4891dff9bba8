#include "kernels/cpu/bf16_avx512.h"
#include "kernels/cpu/tiles_amx.h"
// after the vocabulary
#include "kernels/cpu/kernels.inl"
// after the kernels
#include "kernels/cpu/gemm_amx.inl"

namespace nibble::kernels::cpu {
namespace {

constexpr KernelTable make_amx_table() {
  KernelTable table = make_table(kIsPinned ? "amx" : "amx-unpinned");
  table.linear_nvfp4 = linear_nvfp4_tiles<AmxTiles>;
  table.wants_certificates = true;
  table.tile_scratch_floats = sizeof(TileScratch) / sizeof(float);
  return table;
}

}  // namespace

const KernelTable kAmxTable = make_amx_table();

}  // namespace nibble::kernels::cpu
