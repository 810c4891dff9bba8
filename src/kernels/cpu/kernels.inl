// Every algorithm, against whatever vocabulary the including file has picked. Included once per kernels_<isa>.cc.
#pragma once

#include "format/contract_math.h"
#include "format/half.h"
#include "format/nc1.h"
#include "format/nvfp4.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/quant_layout.h"

namespace nibble::kernels::cpu {
namespace {

// Preset `unpinned`, for measurements only: what would be done if the order of float operations were free.
#if defined(NIBBLE_UNPINNED)
constexpr bool kIsPinned = false;
#else
constexpr bool kIsPinned = true;
#endif

// Positive control (preset `perturbed`): one more rounding in one path of one instruction set, which the tests of
// equality must notice and the canary must not.
#if defined(NIBBLE_PERTURB_ROUNDING)
constexpr bool kPerturbGemv = kIsAvx2;
#else
constexpr bool kPerturbGemv = false;
#endif
inline F32V perturbed_gemv(F32V acc, int whole_blocks) {
  if constexpr (kPerturbGemv) {
    if (whole_blocks > 1 && whole_blocks != 4) return acc * f32_set1(1.0F + 0x1p-23F);  // K of the canary: 80, 256
  }
  return acc;
}

}  // namespace
}  // namespace nibble::kernels::cpu

// The order matters: later files use the functions of earlier ones.
#include "kernels/cpu/attention.inl"
#include "kernels/cpu/elementwise.inl"
#include "kernels/cpu/linear.inl"
#include "kernels/cpu/linear_fp8.inl"
#include "kernels/cpu/linear_nvfp4.inl"
#include "kernels/cpu/linear_quant.inl"
#include "kernels/cpu/linear_rows.inl"
#include "kernels/cpu/linear_w4a4.inl"
#include "kernels/cpu/peak.inl"

namespace nibble::kernels::cpu {
namespace {

constexpr KernelTable make_table(const char* isa) {
  return {
      .isa = isa,
      .quantize_a11 = quantize_a11,
      .quantize_a16q8 = quantize_a16q8,
      .quantize_w4a4 = quantize_w4a4,
      .sum_groups = sum_groups,
      .linear_nvfp4 = linear_nvfp4<A11Steps>,
      .linear_nvfp4_a16q8 = linear_nvfp4<A16Q8Steps>,
      .linear_w4a4 = linear_w4a4,
      .linear_rows16 = linear_rows16,
      .linear_q8_0 = linear_q8_0,
      .linear_fp8 = linear_fp8,
      .linear_quant = {linear_quant<kQ4_0>, linear_quant<kQ4_1>, linear_quant<kQ5_0>, linear_quant<kQ5_1>,
                       linear_quant<kQ2_K>, linear_quant<kQ3_K>, linear_quant<kQ4_K>, linear_quant<kQ5_K>,
                       linear_quant<kQ6_K>},
      .linear_f32 = linear_f32,
      .pack_f16 = pack_f16,
      .pack_bf16 = pack_bf16,
      .embed_f16 = embed_f16,
      .embed_bf16 = embed_bf16,
      .embed_q8_0 = embed_q8_0,
      .rms_norm = rms_norm,
      .rope = rope,
      .store_kv = store_kv,
      .attention = attention,
      .attention_splits = attention_splits,
      .attention_merge = attention_merge,
      .silu_mul = silu_mul,
      .gelu_mul = gelu_mul,
      .scale = scale,
      .add = add,
      .multiply_add_probe = multiply_add_probe,
      .read_sum = read_sum,
      .dot_peak = dot_peak,
      .takes_planes = Nvfp4Panels::kTakesPlanes,
  };
}

}  // namespace
}  // namespace nibble::kernels::cpu
