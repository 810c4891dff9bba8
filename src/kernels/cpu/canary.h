// A start-up test of some hundreds of microseconds: would this machine, in this process, compute what the contract
// says?
#pragma once

#include <cstdint>

#include "base/result.h"
#include "kernels/cpu/kernel_table.h"

namespace nibble::kernels::cpu {

// Refuses flushed subnormals, another rounding mode, contraction, and kernels whose results differ from stored digests.
Status run_canary(const KernelTable& table);

// Digests of what the table computes from fixed inputs; the same for every instruction set.
struct CanaryDigests {
  std::uint64_t elementary;  // silu, rms_norm, rope
  std::uint64_t linear;      // NVFP4 and F16 rows, one, three and five tokens; NVFP4, 33
  std::uint64_t quant;       // nk1: every block-quantized type of GGUF, one and three tokens
  std::uint64_t fp8;         // E4M3 rows, one, three and five tokens
  std::uint64_t attention;   // 130 keys: two splits
  std::uint64_t abilities;   // gelu, scale, attention with a window
  std::uint64_t a16q8;       // nc1-f16: NVFP4 rows, one, three and five tokens
  std::uint64_t w4a4;        // the same under its own contract
  bool operator==(const CanaryDigests&) const = default;
};
CanaryDigests canary_digests(const KernelTable& table);
extern const CanaryDigests kCanaryDigests;

}  // namespace nibble::kernels::cpu
