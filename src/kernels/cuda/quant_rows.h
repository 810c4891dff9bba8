// The block-quantized types of GGUF as the kernels of this backend read them (QuantRows), made on the host at load.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "tensor/quant_block.h"
#include "tensor/tensor_view.h"

namespace nibble::kernels::cuda {

constexpr int kQuantGroup = 16;  // elements that a lane takes; groups of 32 are two of the same scale

// Some rows of a matrix. Empty vectors: the type has no such thing.
struct PackedQuantRows {
  std::vector<std::uint8_t> codes;     // [n_rows, n_in / 2] nibbles, or [n_rows, n_in] bytes
  std::vector<std::int8_t> scales;     // [n_rows, n_in / 16]
  std::vector<std::uint8_t> minimums;  // [n_rows, n_in / 16]
  std::vector<std::uint16_t> d, m;     // f16 [n_rows, n_in / 256], or [n_rows, n_in / 32]
};

// Whether codes are nibbles: of a group of 16, byte j holds elements j and j + 8 as the file has them. Otherwise bytes
// code - offset.
bool has_narrow_codes(const QuantFormat& format);

// The same of all n elements of a matrix, in bytes; 0: the type has no such thing.
struct PackedQuantBytes {
  std::uint64_t codes, d, m, scales, minimums;
};
PackedQuantBytes packed_quant_bytes(const QuantFormat& format, std::uint64_t n);

// Rows [first, first + n). Replaces what was in `out`. The error of a scale that is not finite, if there is one.
std::optional<Error> pack_quant_rows(const QuantFormat& format, const TensorView& view, std::uint64_t first,
                                     std::uint64_t n, PackedQuantRows& out);

}  // namespace nibble::kernels::cuda
