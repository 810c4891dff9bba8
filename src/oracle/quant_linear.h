// One output of a linear layer with block-quantized weights under nk1 (docs/contract.md, section 12).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "oracle/activations.h"
#include "tensor/quant_block.h"

namespace nibble::oracle {

// The exact integers of elements [begin, end) of a block of weights and the activations q of that block.
struct QuantSums {
  std::int64_t weights;   // sum of scale * (code - offset) * q
  std::int64_t minimums;  // sum of minimum * q
};
QuantSums quant_block_sums(const QuantFormat& format, const QuantBlock& w, std::span<const std::int16_t> q, int begin,
                           int end);

// `row` as the file has it, of a type that find_quant_format knows. A bias is added by the caller with one +.
float dot_quant_a11(const QuantFormat& format, std::span<const std::byte> row, const A11& x);

}  // namespace nibble::oracle
