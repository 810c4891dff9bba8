// A matrix of E4M3FN weights. weight = e4m3(code) * scale, rounded once; a scale belongs to a tile of the matrix: all
// of it, a row, or 128 x 128 weights.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace nibble {

constexpr std::uint64_t kFp8Tile = 128;

struct Fp8View {
  std::string_view name;
  std::uint64_t rows = 0;               // output neurons
  std::uint64_t cols = 0;               // inputs
  std::span<const std::uint8_t> codes;  // [rows, cols], never NaN
  std::span<const float> scales;        // [ceil(rows / scale_rows), ceil(cols / scale_cols)], finite and positive
  std::uint64_t scale_rows = 1;         // extents of the tile that shares a scale
  std::uint64_t scale_cols = 1;

  std::span<const std::uint8_t> row_codes(std::uint64_t row) const { return codes.subspan(row * cols, cols); }
  float scale(std::uint64_t row, std::uint64_t col) const {
    const std::uint64_t n = (cols + scale_cols - 1) / scale_cols;
    return scales[row / scale_rows * n + col / scale_cols];
  }
};

void fp8_row_to_f32(const Fp8View& weight, std::uint64_t row, float* out /* [cols] */);

}  // namespace nibble
