// Weights as the file has them, packed for panel_gemm: as the contract's integers, or as floats.
#pragma once

#include "base/result.h"
#include "kernels/backend.h"
#include "kernels/reference/panel_gemm.h"

namespace nibble::kernels::reference {

// Integers of the contracts (sections 4 and 12) for NVFP4, FP8, F16, BF16 and the block-quantized types.
Result<PanelMatrix> pack_integers(const WeightSource& source);
// Floats for those and F32.
Result<PanelMatrix> pack_floats(const WeightSource& source);

// Row `row` of a table as floats, of a TensorView what can_decode takes. out: [cols].
void decode_row(const WeightSource& table, std::uint64_t row, float* out);
bool can_decode(DType dtype);

}  // namespace nibble::kernels::reference
