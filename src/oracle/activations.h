// How each contract turns one token's activations into small integers (docs/contract.md, sections 3, 10 and 11).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/nc1.h"

namespace nibble::oracle {

constexpr int kA11Block = format::nc1::kBlock;
constexpr int kA11Max = format::nc1::kActivationMax;
constexpr int kA16Q8Block = 256;

// nc1: x_i ~ q_i * d of its block of 64. A block that holds a NaN or an infinity has q = 0 and d = NaN.
struct A11 {
  std::vector<std::int16_t> q;  // [n]
  std::vector<float> d;         // [ceil(n / 64)]
  bool finite = true;
};
A11 quantize_a11(std::span<const float> x);

// nc1-f16: x_i ~ q_i * d of its super-block of 256. d is negative where the largest element is positive. A NaN counts
// as 0 here, as in the lane that this reproduces; an infinity gives an infinite d.
struct A16Q8 {
  std::vector<std::int8_t> q;  // [n]
  std::vector<float> d;        // [ceil(n / 256)]
};
A16Q8 quantize_a16q8(std::span<const float> x);

// w4a4: NVFP4 codes of x under a group scale; `input_scale_inv` is the multiplier of the encoding side.
struct W4A4 {
  std::vector<std::uint8_t> codes;   // [n], one a byte
  std::vector<std::uint8_t> scales;  // [n / 16]
};
W4A4 quantize_w4a4(std::span<const float> x, float input_scale_inv);

}  // namespace nibble::oracle
