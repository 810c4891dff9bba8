// The block-quantized types of GGUF as integers, 64 elements at a time: the blocks in which activations are quantized.
// What contract nk1 computes with (docs/contract.md, section 12), and where its file layouts are written down once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace nibble {

// w = d * scale * (code - offset) - m * minimum, where scale and minimum are integers of a group of elements, d and m
// are f16. Types of blocks of 32 have no integers of groups: scale is 1 there, and minimum is -1, because their m is
// added.
struct QuantFormat {
  DType dtype;
  int code_bits;      // of a code as it is stored, without sign
  int offset;         // a code stands for code - offset
  int group;          // elements that share scale and minimum: 16 or 32
  bool is_super;      // d and m belong to 256 elements; otherwise to each 32
  bool has_minimum;   // otherwise every minimum is 0
  int largest_scale;  // |scale|
};

// Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K; nullptr for other types.
const QuantFormat* find_quant_format(DType dtype);

struct QuantBlock {
  int n;                     // elements: 64, or 32 at the end of a row
  std::uint8_t code[64];     // those beyond n stand for zero
  std::int16_t scale[4];     // [64 / group]
  std::int16_t minimum[4];   // [64 / group]
  std::uint16_t d[2], m[2];  // f16, of each half of 32; twice the same where they belong to more
};

// Elements [64 * index, 64 * index + n) of a row.
QuantBlock unpack_block(const QuantFormat& format, std::span<const std::byte> row, std::size_t index);

// The row as f32: the exact weight, rounded once. out: all elements of the row.
void quant_row_to_f32(const QuantFormat& format, std::span<const std::byte> row, float* out);

}  // namespace nibble
