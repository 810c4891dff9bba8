// Inputs that every machine makes alike, for the golden digests of tests/oracle and for kernels to be compared with the
// oracle elsewhere: Philox words turned into floats by exact steps.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "format/e4m3.h"
#include "format/half.h"
#include "oracle/linear.h"
#include "oracle/sampling.h"
#include "tensor/dtype.h"

namespace nibble::oracle::golden {

inline std::uint32_t word(std::uint64_t seed, std::uint64_t i) {
  return static_cast<std::uint32_t>(token_noise(seed, i, 0) >> 32);
}

// About normal with deviation 1 (a sum of four uniforms); every 61st value is 16 times larger, every 97th is 0.
inline std::vector<float> activations(std::uint64_t seed, std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t bits = token_noise(seed, i, 1);
    int sum = 0;
    for (int part = 0; part < 4; ++part) sum += static_cast<int>(bits >> (16 * part) & 0xFFFF);
    x[i] = static_cast<float>(sum - 131070) * 0x1.bp-16F;
    if (i % 61 == 60) x[i] *= 16;
    if (i % 97 == 96) x[i] = 0;
  }
  return x;
}

struct Nvfp4Matrix {
  std::size_t cols = 0;
  std::vector<std::uint8_t> codes;   // [rows, cols / 2]
  std::vector<std::uint8_t> scales;  // [rows, cols / 16]
  float tensor_scale = 0;

  Nvfp4Row row(std::size_t r) const {
    return {std::span(codes).subspan(r * (cols / 2), cols / 2), std::span(scales).subspan(r * (cols / 16), cols / 16),
            tensor_scale};
  }
};

// Codes of every kind. Scales near 1 in even rows, so that the certificate holds; over all finite bytes, negative,
// zero and subnormal ones too, in odd rows.
inline Nvfp4Matrix nvfp4_matrix(std::uint64_t seed, std::size_t rows, std::size_t cols) {
  Nvfp4Matrix m{cols, std::vector<std::uint8_t>(rows * cols / 2), std::vector<std::uint8_t>(rows * cols / 16),
                0x1.9a4p-12F};
  for (std::size_t i = 0; i < m.codes.size(); ++i) m.codes[i] = static_cast<std::uint8_t>(word(seed, i));
  for (std::size_t i = 0; i < m.scales.size(); ++i) {
    const std::uint32_t w = word(seed + 1, i);
    const bool even_row = i / (cols / 16) % 2 == 0;
    m.scales[i] = static_cast<std::uint8_t>(even_row ? 0x30 + w % 16 : w);
    if (format::e4m3_is_nan(m.scales[i])) m.scales[i] = 0;
  }
  return m;
}

// Blocks of 34 bytes.
inline std::vector<std::byte> q8_0_row(std::uint64_t seed, std::size_t cols) {
  std::vector<std::byte> row(cols / 32 * 34);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::byte>(word(seed, i));
  for (std::size_t b = 0; b < cols / 32; ++b) {
    const auto scale = static_cast<std::uint16_t>(0x1000 + word(seed + 1, b) % 0x1000);
    std::memcpy(&row[b * 34], &scale, sizeof(scale));
  }
  return row;
}

// Where the f16 scales of a block lie.
inline std::vector<std::size_t> scale_offsets(DType dtype) {
  switch (dtype) {
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kQ6_K:
      return {208};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    default:
      return {0};
  }
}

// Blocks of a block-quantized type of GGUF: any codes and integer scales, f16 scales of both signs between 2^-11 and 2.
inline std::vector<std::byte> quant_row(std::uint64_t seed, DType dtype, std::size_t cols) {
  std::vector<std::byte> row(bytes_of(dtype, cols));
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::byte>(word(seed, i));
  std::size_t n = 0;
  for (std::size_t block = 0; block < row.size(); block += dtype_info(dtype).block_bytes) {
    for (const std::size_t offset : scale_offsets(dtype)) {
      const std::uint32_t bits = word(seed + 1, n++);
      const auto scale = static_cast<std::uint16_t>((bits & 0x8000) | (0x1000 + bits % 0x3000));
      std::memcpy(&row[block + offset], &scale, sizeof(scale));
    }
  }
  return row;
}

constexpr DType kQuantTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                                 DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

}  // namespace nibble::oracle::golden
