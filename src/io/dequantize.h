// Decodes the block types of GGUF to f32, one rounding per operation in the order of the gguf package's reference, so
// that every finite value has its bits (tests/io/gguf_reference.py). Where a scale is NaN or infinite the result is the
// same NaN or infinity; the payload and sign of a NaN are the machine's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"
#include "tensor/fp8_view.h"
#include "tensor/nvfp4_view.h"
#include "tensor/tensor_view.h"

namespace nibble {

// F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K.
bool can_dequantize(DType dtype);

// Whole blocks: out.size() is a multiple of the block size, and `blocks` their bytes.
void dequantize(DType dtype, std::span<const std::byte> blocks, std::span<float> out);

// One row, out [cols]. Rows are independent, so any thread may take any.
void dequantize_row(const TensorView& tensor, std::uint64_t row, std::span<float> out);
void dequantize_row(const Nvfp4View& weight, std::uint64_t row, std::span<float> out);
void dequantize_row(const Fp8View& weight, std::uint64_t row, std::span<float> out);

}  // namespace nibble
