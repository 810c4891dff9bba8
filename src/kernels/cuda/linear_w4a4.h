// NVFP4 layers of contract w4a4 (docs/contract.md, section 10) on int8 tensor cores, as the rest of the backend sees
// them.
//
// A product of 16 codes with 16 codes, in halves, is at most 16 * 12 * 12: one small matrix instruction for the group.
// The scales of both sides follow as integers, q9 of the weights in 32 bits, q9 of the activations into a sum of 64
// bits, so that a row is one exact sum whoever adds which part of it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "format/portable.h"

namespace nibble::kernels::cuda {

// --- activations ---

constexpr int kW4A4Block = 64;  // of K, four groups; rows are padded to whole ones
constexpr int w4a4_blocks(int n_in) {
  return (n_in + kW4A4Block - 1) / kW4A4Block;
}

// Where element k of a row lies: the four elements that a lane of a product takes of a group, then those of the next
// group, so that it loads a block's in one.
NIBBLE_FN int w4a4_input_position(int k) {
  return (k & ~63) | (k >> 2 & 3) << 4 | (k >> 4 & 3) << 2 | (k & 3);
}

struct W4A4Input {
  const std::int8_t* q1 = nullptr;   // [n_rows, w4a4_blocks(n_in), 64], zeros beyond n_in
  const std::int32_t* q9 = nullptr;  // [n_rows, w4a4_blocks(n_in), 4], the same
  bool operator==(const W4A4Input&) const = default;
};

// --- weights ---

// A piece is a block of 16 outputs in the order of the fragments: of 32 lanes a word for each group, codes of outputs g
// and g + 8; then a word of four scales of each output, as mantissa and shift (pack_q9).
constexpr int kW4A4Outputs = 16, kW4A4CodeBytes = kW4A4Outputs * kW4A4Block / 2;
constexpr int kW4A4Piece = kW4A4CodeBytes + kW4A4Outputs * 4;
constexpr std::size_t w4a4_packed_bytes(int n_out, int n_in) {
  return std::size_t{1} * ((n_out + kW4A4Outputs - 1) / kW4A4Outputs) * w4a4_blocks(n_in) * kW4A4Piece;
}

struct W4A4Weights {
  const std::uint8_t* packed = nullptr;  // [n_tiles, n_blocks, kW4A4Piece], aligned to 16
  int n_out = 0;
  int n_in = 0;
  float tensor_scale = 1;
  float input_scale_inv = 1;
  bool operator==(const W4A4Weights&) const = default;
};

// Scales lose their sign, which the codes of their group take.
struct PackW4A4Args {
  const std::uint8_t* codes = nullptr;   // [n_out, n_in / 2]
  const std::uint8_t* scales = nullptr;  // [n_out, n_in / 16]
  int n_out = 0;
  int n_in = 0;
  std::uint8_t* packed = nullptr;  // w4a4_packed_bytes
};

struct LinearW4A4TilesArgs {
  W4A4Weights weights;
  W4A4Input input;
  const float* bias = nullptr;  // [n_out] or null
  float* out = nullptr;         // [n_rows, n_out]
  int n_rows = 0;
  bool operator==(const LinearW4A4TilesArgs&) const = default;
};

cudaError_t launch(const PackW4A4Args& args, cudaStream_t stream);
cudaError_t launch(const LinearW4A4TilesArgs& args, cudaStream_t stream);

}  // namespace nibble::kernels::cuda
