// Block-quantized weights of GGUF: from the file's rows to the records of quant_layout.h.
#pragma once

#include <cstdint>

#include "base/page_arena.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/cpu/kernel_table.h"
#include "tensor/tensor_view.h"

namespace nibble::kernels::cpu {

// A copy about as large as the tensor in the file.
struct QuantLinear {
  PageSpan records;
  PageSpan super_scales;
  int type = 0;  // index into kQuantLayouts and KernelTable::linear_quant
  QuantWeights weights = {};
};

// Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K.
bool is_quant_tile_type(DType dtype);

// Fails where an f16 scale of the tensor is not finite.
Result<QuantLinear> make_quant_linear(const TensorView& view, ThreadPool& pool, PageArena& arena);

}  // namespace nibble::kernels::cpu
