// NVFP4 layers of contract native-fp4 (docs/contract.md, section 13) on FP4 tensor cores: codes and scales of both
// sides go into the instruction as they are. Compiled for sm_120a only; never run on hardware.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/kernels.h"

namespace nibble::kernels::cuda {

// Operands lie in the order of fragments. A piece is what one product takes: 64 of K (zeros beyond n_in) of 16 outputs,
// or of 8 tokens; codes of 32 lanes, then a word of four scales for each output or token.
constexpr int kFp4Depth = 64, kFp4Outputs = 16, kFp4Tokens = 8;
constexpr int kFp4WeightPiece = kFp4Outputs * (kFp4Depth / 2 + 4), kFp4InputPiece = kFp4Tokens * (kFp4Depth / 2 + 4);
constexpr int fp4_blocks(int n_in) {
  return (n_in + kFp4Depth - 1) / kFp4Depth;
}
constexpr std::size_t fp4_weight_bytes(int n_out, int n_in) {
  return std::size_t{1} * ((n_out + kFp4Outputs - 1) / kFp4Outputs) * fp4_blocks(n_in) * kFp4WeightPiece;
}
constexpr std::size_t fp4_input_bytes(int max_rows, int n_in) {
  return std::size_t{1} * ((max_rows + kFp4Tokens - 1) / kFp4Tokens) * fp4_blocks(n_in) * kFp4InputPiece;
}

struct Fp4Weights {
  const std::uint8_t* packed = nullptr;  // [n_tiles, n_blocks, kFp4WeightPiece]
  int n_out = 0;
  int n_in = 0;
  float tensor_scale = 1;
  float input_scale_inv = 1;
  bool operator==(const Fp4Weights&) const = default;
};

// Scales lose their sign, which the instruction does not read: the group's codes take it.
struct PackFp4Args {
  const std::uint8_t* codes = nullptr;   // [n_out, n_in / 2]
  const std::uint8_t* scales = nullptr;  // [n_out, n_in / 16]
  int n_out = 0;
  int n_in = 0;
  std::uint8_t* packed = nullptr;  // fp4_weight_bytes
};

// Activations as in w4a4, for weights with this input scale.
struct QuantizeFp4Args {
  const float* x = nullptr;        // [n_rows, dim]
  std::uint8_t* packed = nullptr;  // [n_tiles, n_blocks, kFp4InputPiece]; tokens beyond n_rows are of no effect
  float input_scale_inv = 0;
  int n_rows = 0;
  int dim = 0;
  bool operator==(const QuantizeFp4Args&) const = default;
};

struct LinearFp4Args {
  Fp4Weights weights;
  const std::uint8_t* input = nullptr;  // of QuantizeFp4Args
  const float* bias = nullptr;          // [n_out] or null
  float* out = nullptr;                 // [n_rows, n_out]
  int n_rows = 0;
  bool operator==(const LinearFp4Args&) const = default;
};

// What a product of known operands comes to on this GPU. Left alone where it has no such instruction, or the binary
// none for it.
enum Fp4Verdict : int { kFp4Absent, kFp4Right, kFp4Wrong };
struct CheckFp4Args {
  int* verdict = nullptr;  // kFp4Absent before
};

cudaError_t launch(const PackFp4Args& args, cudaStream_t stream);
cudaError_t launch(const QuantizeFp4Args& args, cudaStream_t stream);
cudaError_t launch(const LinearFp4Args& args, cudaStream_t stream);
cudaError_t launch(const CheckFp4Args& args, cudaStream_t stream);

}  // namespace nibble::kernels::cuda
