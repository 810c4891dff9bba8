// One row of f32 as F32, F16, BF16, Q8_0 or FP8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tensor/dtype.h"

namespace nibble {

// Writes bytes_of(dtype, row.size()) bytes. Returns the index of the first element that does not fit: not finite, or
// too large for the type; the bytes are then meaningless.
std::optional<std::size_t> encode_row(DType dtype, std::span<const float> row, std::span<std::byte> out);

// E4M3FN codes [row.size()] under a scale of the row, amax / 448 (1 for a row of zeros). Returns the scale, or nothing
// where a weight is not finite or the scale beyond what contracts compute with.
std::optional<float> encode_fp8_row(std::span<const float> row, std::span<std::uint8_t> codes);

}  // namespace nibble
