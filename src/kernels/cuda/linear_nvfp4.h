// NVFP4 linear layers of nc1 and nc1-f16 on tensor cores (docs/contract.md, sections 4 and 11), as the rest of the
// backend sees them:
// weights are packed once on the device, and one launch multiplies them with up to four layers that share an input.
//
// The value code * scale has at most six significant bits, so it is exact in f16, as is an activation of 11 bits. A
// tensor core adds a block of 64 products in f32 without rounding if the block's certificate holds; the fma per block
// follows in order. Tiles with a block that fails its certificate are summed group by group, which is always exact.
// In nc1-f16 activations have 8 bits, and super-blocks of 256 take the place of blocks.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "format/portable.h"

namespace nibble::kernels::cuda {

// --- activations: what the quantizer writes ---

// Inputs of a linear layer are padded to pairs of blocks, and rows of factors to a multiple of 128.
constexpr int kNvfp4Pair = 128;
constexpr int nvfp4_padded_inputs(int n_in) {
  return (n_in + kNvfp4Pair - 1) / kNvfp4Pair * kNvfp4Pair;
}
constexpr int nvfp4_d_stride(int max_rows) {
  return (max_rows + 127) / 128 * 128;
}

// Where element k of a row lies. Two groups of a block alternate, so that one 32-bit word holds a product of each and
// meets both of their scales at once: block * 64 + (group / 2) * 32 + (element of the group) * 2 + group % 2.
NIBBLE_FN int nvfp4_input_position(int k) {
  return (k & ~31) | (k & 15) << 1 | (k >> 4 & 1);
}

// Where thread blocks of a gemm tell each other of sums that they hand over: eight warps each of up to 256.
constexpr int kNvfp4Handovers = 2048;

// The integers of a11 or a16q8 as f16, exact, and their factors: in a16q8 each of the blocks of a super-block has its.
// 16-byte aligned. Where the sums are free, the activations themselves in f16, and no factors.
struct Nvfp4Input {
  const std::uint16_t* q = nullptr;  // f16 [n_rows, nvfp4_padded_inputs(n_in)], zero where there is no element
  const float* d = nullptr;          // [nvfp4_padded_inputs(n_in) / 64, d_stride], column = row of q; zero beyond n_in
  int n_rows = 0;
  int n_in = 0;
  int d_stride = 0;  // nvfp4_d_stride(max_rows)
  // [kNvfp4Handovers] zeros, before and after each launch; of one stream. Null: no tile is shared by thread blocks.
  std::uint32_t* handovers = nullptr;
  bool operator==(const Nvfp4Input&) const = default;
};

// --- weights ---

// Over what sums are exact. kBlocks: contract nc1, 64 of K. kSuperBlocks: nc1-f16, 256. kFree: contract native, f32
// sums over the whole of K in whatever order is fastest.
enum class Nvfp4Sums : std::uint8_t { kBlocks, kSuperBlocks, kFree };

// A layer in one piece of device memory of nvfp4_packed_bytes(), aligned to 256.
struct Nvfp4Weights {
  const std::uint8_t* packed = nullptr;
  int n_out = 0;
  int n_in = 0;
  float tensor_scale = 1;
  int n_exact_tiles = 0;  // tiles of 16 rows that take the exact route, known after finish_packing
  bool operator==(const Nvfp4Weights&) const = default;
};
std::size_t nvfp4_packed_bytes(int n_out, int n_in);

struct Nvfp4PackArgs {
  const std::uint8_t* codes = nullptr;   // [n_out, n_in / 2], device memory, aligned to 8
  const std::uint8_t* scales = nullptr;  // [n_out, n_in / 16], device memory, no NaN
  int n_out = 0;
  int n_in = 0;
  float tensor_scale = 1;
  std::uint8_t* packed = nullptr;       // nvfp4_packed_bytes(n_out, n_in)
  bool distrust = false;                // for tests: every tile takes the exact route
  Nvfp4Sums sums = Nvfp4Sums::kBlocks;  // whose certificate decides which tiles do; of the layout itself no part
};
// The sources may go once the stream has passed.
cudaError_t pack_nvfp4(const Nvfp4PackArgs& args, cudaStream_t stream);
// Waits for the stream and reads how many tiles are uncertified.
cudaError_t finish_packing(const Nvfp4PackArgs& args, Nvfp4Weights* weights, cudaStream_t stream);

// --- the product ---

// out = input * weights^T + bias of one layer.
struct Nvfp4Segment {
  Nvfp4Weights weights;
  const float* bias = nullptr;  // [n_out] or null
  float* out = nullptr;         // [n_rows, out_stride]
  int out_stride = 0;           // floats from one row to the next, usually n_out
  bool operator==(const Nvfp4Segment&) const = default;
};

constexpr int kNvfp4MaxSegments = 4;
constexpr int kNvfp4GemvRows = 16;  // up to so many rows of input the weights' bytes are the limit

// Others than kAuto are for tests and measurements.
enum class Nvfp4Route : std::uint8_t { kAuto, kGemv, kGemm, kGemmMmaSync };

struct Nvfp4LinearArgs {
  Nvfp4Input input;
  Nvfp4Segment segments[kNvfp4MaxSegments];  // of equal n_in
  int n_segments = 1;
  Nvfp4Route route = Nvfp4Route::kAuto;
  Nvfp4Sums sums = Nvfp4Sums::kBlocks;  // what the weights were packed for; any of them for kFree
  // Few rows: no multiprocessor takes two thread blocks of the launch where each could have one. While a small kernel
  // ahead holds some of them, the GPU does that. Products right behind one another want the room for the next one.
  bool is_spread = false;
  bool operator==(const Nvfp4LinearArgs&) const = default;
};
// Asynchronous; fit for capture into a graph. May start before the kernels ahead of it in the stream have ended (it
// reads weights then, which nobody writes) and waits for them itself before it touches anything else.
cudaError_t linear_nvfp4(const Nvfp4LinearArgs& args, cudaStream_t stream);

}  // namespace nibble::kernels::cuda
