// The extents of a tensor in GGUF's order: dim(0) is contiguous. A matrix is [rows, cols] with cols = dim(0), the input
// side of a linear layer, and rows = dim(1), one output neuron each.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"

namespace nibble {

class Shape {
 public:
  static constexpr std::size_t kMaxRank = 4;

  Shape() = default;  // rank 0: a scalar, one element
  Shape(std::initializer_list<std::uint64_t> dims) {
    for (std::uint64_t dim : dims) append(dim);
  }

  void append(std::uint64_t dim) {
    NIBBLE_CHECK(rank_ < kMaxRank, "a shape has at most 4 dimensions");
    dims_[rank_++] = dim;
  }

  std::size_t rank() const { return rank_; }
  std::uint64_t dim(std::size_t i) const { return i < rank_ ? dims_[i] : 1; }
  std::uint64_t cols() const { return dim(0); }
  std::uint64_t rows() const { return dim(1) * dim(2) * dim(3); }
  std::uint64_t size() const { return cols() * rows(); }  // readers refuse shapes whose product overflows
  bool operator==(const Shape&) const = default;

  // "[576, 1536]", in the order of the file.
  std::string to_string() const {
    std::string text = "[";
    for (std::size_t i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string(dims_[i]);
    return text + "]";
  }

 private:
  std::array<std::uint64_t, kMaxRank> dims_ = {};
  std::size_t rank_ = 0;
};

}  // namespace nibble
