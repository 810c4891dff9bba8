// One output of a linear layer: the dot products of docs/contract.md, sections 4, 5, 10 and 11, for one row of weights
// and one token. A bias is added by the caller with one +.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "oracle/activations.h"

namespace nibble::oracle {

// A row of NVFP4 weights as the file has it.
struct Nvfp4Row {
  std::span<const std::uint8_t> codes;   // [n / 2], the even element in the low nibble
  std::span<const std::uint8_t> scales;  // [n / 16]
  float tensor_scale = 1;
};

// --- nc1 ---

float dot_nvfp4_a11(const Nvfp4Row& w, const A11& x);

// A row of 16-bit weights made integer at load: w_i ~ q_i * 2^unit of its block of 64, |q_i| <= 16383.
struct IntegerRow {
  std::vector<std::int16_t> q;  // [n]
  std::vector<int> unit;        // [ceil(n / 64)]
};
IntegerRow make_integer_row(std::span<const float> w);  // the f16 or bf16 weights as f32, finite
float dot_16bit_a11(const IntegerRow& w, const A11& x);

// Blocks of 34 bytes: an f16 scale, then 32 int8. n is a multiple of 32.
float dot_q8_0_a11(std::span<const std::byte> row, const A11& x);

// A row of E4M3FN weights, with the scale of each block of 64.
struct Fp8Row {
  std::span<const std::uint8_t> codes;  // [n]
  std::vector<float> scales;            // [ceil(n / 64)]
};
float dot_fp8_a11(const Fp8Row& w, const A11& x);

// The canonical reduction of w_i * x_i: activations are not quantized.
float dot_f32(std::span<const float> w, std::span<const float> x);

// --- nc1-f16: the result is rounded to f16 ---

float dot_nvfp4_a16q8(const Nvfp4Row& w, const A16Q8& x);
float dot_nvfp4_w4a4(const Nvfp4Row& w, const W4A4& x, float input_scale_inv);

// --- neither: the weights as floats against float activations, for measurements ---

float dot_nvfp4_float(const Nvfp4Row& w, std::span<const float> x);

// The exact integer of one block: sum of q9(scale) * q1(code) * q over elements [first, first + q.size()) of the row.
std::int64_t nvfp4_block_sum(const Nvfp4Row& w, std::size_t first, std::span<const std::int16_t> q);

}  // namespace nibble::oracle
