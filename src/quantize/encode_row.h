// One row of f32 as F32, F16, BF16 or Q8_0.
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

}  // namespace nibble
