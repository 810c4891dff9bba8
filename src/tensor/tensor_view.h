// A tensor that somebody else owns: usually a piece of a mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace nibble {

struct TensorView {
  std::string_view name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> bytes;  // [rows, row_bytes], dense

  std::uint64_t rows() const { return shape.rows(); }
  std::uint64_t cols() const { return shape.cols(); }
  std::uint64_t row_bytes() const { return bytes_of(dtype, cols()); }
  std::span<const std::byte> row_span(std::uint64_t first, std::uint64_t count = 1) const {
    NIBBLE_CHECK(first <= rows() && count <= rows() - first, "rows outside of the tensor");
    return bytes.subspan(first * row_bytes(), count * row_bytes());
  }
};

}  // namespace nibble
