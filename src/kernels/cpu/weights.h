// Weights as the CPU kernels want them: the file's bytes, plus small side arrays that are made at load.
#pragma once

#include <cstdint>
#include <variant>

#include "base/aligned_buffer.h"
#include "base/page_arena.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/quant_tiles.h"

namespace nibble::kernels::cpu {

// Forms are copies as large as the tensor in the file, except for F32. The file is read for wide tiles of NVFP4 only.
struct Nvfp4Linear {
  PageSpan records;
  AlignedBuffer<std::uint8_t> is_wide, certified;
  Nvfp4Weights weights = {};
};
struct Rows16Linear {
  PageSpan records;
  AlignedBuffer<std::uint8_t> unit;
  Rows16Weights weights = {};
};
struct Q8Linear {
  PageSpan records;
  Q8Weights weights = {};
};
struct Fp8Linear {
  PageSpan records;
  AlignedBuffer<std::uint16_t> small_lines;
  AlignedBuffer<float> g;
  Fp8Weights weights = {};
};
struct F32Linear {
  F32Weights weights = {};
};

struct CpuLinear final : Linear {
  std::variant<Nvfp4Linear, Rows16Linear, Q8Linear, Fp8Linear, QuantLinear, F32Linear> form;
};

// Refuses what the contracts cannot compute: a tensor scale outside [2^-42, 2^42] for a11, non-finite weights, other
// types. NVFP4 weights are made for one format of activations. Large
// tensors are prepared by all threads of the pool, into memory of the arena.
Result<std::unique_ptr<Linear>> make_cpu_linear(const WeightSource& source, const KernelTable& table, ThreadPool& pool,
                                                PageArena& arena, ActivationFormat format = ActivationFormat::kA11);

}  // namespace nibble::kernels::cpu
