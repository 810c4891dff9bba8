// The kernels of this backend as the host sees them: plain structs in, one
// launch function each. Every struct is the whole truth about its launch, so
// that equal structs in equal order may be replayed as one graph.
//
// All pointers are device memory unless a comment says otherwise. Shapes as in
// kernels/backend.h; arithmetic as in docs/contract.md, whose section each
// kernel names.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace nibble::kernels::cuda {

constexpr int kBlockColumns = 64;  // of a block of a11

constexpr int padded_columns(int n) {
  return (n + kBlockColumns - 1) / kBlockColumns * kBlockColumns;
}

// Where a kernel reports rows that met a non-finite value: row i raises
// flags[first + i], if there are so many.
struct Flags {
  std::uint8_t* flags = nullptr;
  int count = 0;
  int first = 0;
  bool operator==(const Flags&) const = default;
};

// The integers of a11 (section 3) of a matrix [n_rows, n_in], rows padded with
// zeros to whole blocks, twice: as int16 and, for tensor cores, as f16 in the
// order of linear_nvfp4.h.
struct Quantized {
  std::int16_t* q = nullptr;   // [n_rows, padded_columns(n_in)]
  float* d = nullptr;          // [n_rows, padded_columns(n_in) / 64]
  std::uint16_t* h = nullptr;  // f16 [n_rows, h_stride]
  float* d_columns = nullptr;  // [h_stride / 64, d_stride]
  int h_stride = 0;
  int d_stride = 0;
  bool h_is_native = false;  // h holds the values themselves, rounded to f16
  bool operator==(const Quantized&) const = default;
};

constexpr int kSuperBlockColumns = 256;  // of a16q8
constexpr int super_blocks(int n) {
  return (n + kSuperBlockColumns - 1) / kSuperBlockColumns;
}

// The integers of a16q8 (section 11): as bytes, rows padded with zeros to whole super-blocks, or for tensor cores as
// f16 in the order of linear_nvfp4.h, with the factor of a super-block for each of its blocks.
struct QuantizedA16Q8 {
  std::int8_t* q = nullptr;    // [n_rows, super_blocks(n_in), 256], or null
  float* d = nullptr;          // [n_rows, super_blocks(n_in)]
  std::uint16_t* h = nullptr;  // f16 [n_rows, h_stride], where q is null
  float* d_columns = nullptr;  // [h_stride / 64, d_stride]
  int h_stride = 0;
  int d_stride = 0;
  bool operator==(const QuantizedA16Q8&) const = default;
};

// The codes of w4a4 (section 10) as integers: in halves, and the scales in units of 2^-9. In the order of the row, or
// for tensor cores in that of linear_w4a4.h.
struct QuantizedW4A4 {
  std::int8_t* q1 = nullptr;   // [n_rows, columns]
  std::int32_t* q9 = nullptr;  // [n_rows, columns / 16]
  int columns = 0;             // n_in, or that in whole blocks of 64
  bool is_for_tiles = false;
  bool operator==(const QuantizedW4A4&) const = default;
};

// --- elementwise.cu ---

enum class RowFormat : std::int32_t { kF32, kF16, kBF16, kQ8, kFp8, kQuant };

// What the block-quantized types of section 12 have beside their codes: w = d * scale * (code - offset) - m * minimum.
// Groups are of 16 elements here, which is what a lane takes.
struct QuantRows {
  bool is_narrow =
      false;  // codes are nibbles: of a group, byte j holds elements j and j + 8; otherwise bytes code - offset
  bool is_super = false;     // d and m belong to 256 elements; otherwise to each 32, and scales are 1, minimums -1
  std::uint32_t offset = 0;  // of nibbles
  const std::int8_t* scales = nullptr;     // [n_out, n_in / 16], of super-blocks
  const std::uint8_t* minimums = nullptr;  // [n_out, n_in / 16], of super-blocks with m
  const std::uint16_t* d = nullptr;        // f16 [n_out, n_in / 256 or n_in / 32]
  const std::uint16_t* m = nullptr;        // the same, null where the type has none
  bool operator==(const QuantRows&) const = default;
};

// Rows of weights as they lie on the device. kQ8: codes apart from their f16
// scales.
struct Rows {
  RowFormat format = RowFormat::kF32;
  int n_out = 0;
  int n_in = 0;
  int stride = 0;                         // elements from one row to the next
  const void* values = nullptr;           // [n_out, stride]: f32, f16, bf16, int8 or E4M3; kQuant: codes
  const std::uint16_t* scales = nullptr;  // kQ8: f16 [n_out, n_in / 32]
  const std::uint8_t* units = nullptr;    // kF16, kBF16: exponent of a block's
                                          // unit + 127, [n_out, n_blocks]
  const float* g = nullptr;               // kFp8: scale * 2^-9, [n_out, n_scales]
  int n_scales = 1;                       // along K
  int scale_columns = 1;                  // of K, that share one
  QuantRows quant;                        // kQuant
  bool operator==(const Rows&) const = default;
};

struct EmbedArgs {
  Rows table;
  const std::int32_t* tokens = nullptr;  // [n_rows]
  int n_rows = 0;
  float* out = nullptr;  // [n_rows, n_in]
  bool operator==(const EmbedArgs&) const = default;
};

// x += y (if y), normed = rms_norm(x), quantized = a11(normed) (if
// quantized.q). Section 5.
struct AddNormArgs {
  float* x = nullptr;        // [n_rows, dim]
  const float* y = nullptr;  // or null
  const float* weight = nullptr;
  float* normed = nullptr;
  Quantized quantized;
  Flags flags;
  int n_rows = 0;
  int dim = 0;
  float eps = 0;
  bool operator==(const AddNormArgs&) const = default;
};

// quantized = a11(x).
struct QuantizeArgs {
  const float* x = nullptr;  // [n_rows, dim]
  Quantized quantized;
  Flags flags;
  int n_rows = 0;
  int dim = 0;
  bool operator==(const QuantizeArgs&) const = default;
};

enum class Gate : std::int32_t { kSilu, kGelu };

// out = silu(gate) * up, or gelu_tanh(gate) * up; quantized = a11(out) (if quantized.q). Section 6.
struct GateArgs {
  const float* gate = nullptr;
  const float* up = nullptr;
  float* out = nullptr;  // may be gate or up
  Quantized quantized;
  Flags flags;
  int n_rows = 0;
  int dim = 0;
  Gate kind = Gate::kSilu;
  bool operator==(const GateArgs&) const = default;
};

// x *= factor.
struct ScaleArgs {
  float* x = nullptr;
  float factor = 1;
  std::int64_t n = 0;
  bool operator==(const ScaleArgs&) const = default;
};

// x += y.
struct AddArgs {
  float* x = nullptr;
  const float* y = nullptr;
  std::int64_t n = 0;
  bool operator==(const AddArgs&) const = default;
};

// out[i] = x[indices[i]] + y[indices[i]].
struct AddRowsArgs {
  const float* x = nullptr;
  const float* y = nullptr;
  const std::int32_t* indices = nullptr;
  float* out = nullptr;
  int n_rows = 0;
  int dim = 0;
  bool operator==(const AddRowsArgs&) const = default;
};

cudaError_t launch(const EmbedArgs& args, cudaStream_t stream);
cudaError_t launch(const AddNormArgs& args, cudaStream_t stream);
cudaError_t launch(const QuantizeArgs& args, cudaStream_t stream);
cudaError_t launch(const GateArgs& args, cudaStream_t stream);
cudaError_t launch(const ScaleArgs& args, cudaStream_t stream);
cudaError_t launch(const AddArgs& args, cudaStream_t stream);
cudaError_t launch(const AddRowsArgs& args, cudaStream_t stream);

// --- quantize_formats.cu ---

struct QuantizeA16Q8Args {
  const float* x = nullptr;  // [n_rows, dim]
  QuantizedA16Q8 quantized;
  Flags flags;  // of rows that f16 does not hold
  int n_rows = 0;
  int dim = 0;
  bool operator==(const QuantizeA16Q8Args&) const = default;
};

// For weights with this input scale. Flags are the business of CheckHalvesArgs.
struct QuantizeW4A4Args {
  const float* x = nullptr;  // [n_rows, dim]
  QuantizedW4A4 quantized;
  float input_scale_inv = 0;
  int n_rows = 0;
  int dim = 0;
  bool operator==(const QuantizeW4A4Args&) const = default;
};

struct CheckHalvesArgs {
  const float* x = nullptr;  // [n_rows, dim]
  Flags flags;               // of rows that f16 does not hold
  int n_rows = 0;
  int dim = 0;
  bool operator==(const CheckHalvesArgs&) const = default;
};

cudaError_t launch(const QuantizeA16Q8Args& args, cudaStream_t stream);
cudaError_t launch(const QuantizeW4A4Args& args, cudaStream_t stream);
cudaError_t launch(const CheckHalvesArgs& args, cudaStream_t stream);

// --- linear_rows.cu, linear_nvfp4_*.cu that sum integers: sections 4, 10 and 11 ---

struct LinearRowsArgs {
  Rows weights;
  Quantized input;
  const float* x = nullptr;  // kF32: [n_rows, n_in], not quantized
  const float* bias = nullptr;
  float* out = nullptr;  // [n_rows, n_out]
  int n_rows = 0;
  bool operator==(const LinearRowsArgs&) const = default;
};

// NVFP4 as the file has it.
struct Nvfp4Rows {
  int n_out = 0;
  int n_in = 0;
  const std::uint8_t* codes = nullptr;   // [n_out, n_in / 2]
  const std::uint8_t* scales = nullptr;  // [n_out, n_in / 16]
  float g = 0;                           // tensor_scale * 2^-10, for a11
  float tensor_scale = 0;
  float input_scale_inv = 0;  // w4a4
  bool operator==(const Nvfp4Rows&) const = default;
};

// The sum of a block in 64-bit integers: right for every block, certified or
// not.
struct LinearNvfp4Args {
  Nvfp4Rows weights;
  Quantized input;
  const float* bias = nullptr;
  float* out = nullptr;
  int n_rows = 0;
  bool operator==(const LinearNvfp4Args&) const = default;
};

struct LinearA16Q8Args {
  Nvfp4Rows weights;
  QuantizedA16Q8 input;
  const float* bias = nullptr;
  float* out = nullptr;
  int n_rows = 0;
  bool operator==(const LinearA16Q8Args&) const = default;
};

struct LinearW4A4Args {
  Nvfp4Rows weights;
  QuantizedW4A4 input;
  const float* bias = nullptr;
  float* out = nullptr;
  int n_rows = 0;
  bool operator==(const LinearW4A4Args&) const = default;
};

cudaError_t launch(const LinearRowsArgs& args, cudaStream_t stream);
cudaError_t launch_linear_quant(const LinearRowsArgs& args, cudaStream_t stream);  // kQuant; linear_quant.cu
cudaError_t launch(const LinearNvfp4Args& args, cudaStream_t stream);
cudaError_t launch(const LinearA16Q8Args& args, cudaStream_t stream);
cudaError_t launch(const LinearW4A4Args& args, cudaStream_t stream);

// --- repack.cu: at load ---

// Blocks of 34 bytes to codes and scales; found_bad becomes non-zero if a scale
// is not finite.
struct SplitQ8Args {
  const std::uint8_t* blocks = nullptr;
  std::int8_t* codes = nullptr;
  std::uint16_t* scales = nullptr;
  std::int64_t n_blocks = 0;
  int* found_bad = nullptr;
};
// units of every block of a matrix of 16-bit rows; found_bad becomes non-zero
// if a value is not finite.
struct RowUnitsArgs {
  Rows rows;
  std::uint8_t* units = nullptr;
  int* found_bad = nullptr;
};
struct CheckFiniteArgs {
  const float* values = nullptr;
  std::int64_t n = 0;
  int* found_bad = nullptr;
};

cudaError_t launch(const SplitQ8Args& args, cudaStream_t stream);
cudaError_t launch(const RowUnitsArgs& args, cudaStream_t stream);
cudaError_t launch(const CheckFiniteArgs& args, cudaStream_t stream);

// --- canary.cu ---

struct TensorCoreArgs {
  int n_tiles = 0;
  int* n_wrong = nullptr;  // sums that are not exact, added to
};
cudaError_t launch(const TensorCoreArgs& args, cudaStream_t stream);

// Whether this binary has machine code for the current device.
cudaError_t probe_kernel_image();

// --- rope_kv.cu, attention.cu: sections 7 and 8 ---

constexpr int kSplit = 128;       // keys
constexpr int kMaxHeadDim = 256;  // of attention
constexpr int kKeyAlign = 16;     // elements to which a stored key is padded
constexpr int padded_head(int dim) {
  return (dim + kKeyAlign - 1) / kKeyAlign * kKeyAlign;
}

// A row of a batch on the device: its cache by parts, and its position.
struct DeviceRow {
  __half* keys = nullptr;         // [n_layers, n_kv_heads, capacity,
                                  // padded_head(head_dim)]: integers, exact in f16
  std::int8_t* values = nullptr;  // [n_layers, n_kv_heads, capacity / 4, head_dim, 4]: four
                                  // positions of an element lie together
  float* scales = nullptr;        // [n_layers, n_kv_heads, 2, capacity]: of keys, of values
  std::int32_t pos = 0;
  std::int32_t capacity = 0;  // a multiple of kSplit
};

struct RopeArgs {
  float* x = nullptr;  // [n_rows, n_heads, head_dim]
  const DeviceRow* rows = nullptr;
  const float* cos_sin = nullptr;  // [n_positions, rotary_dim / 2, 2]
  int n_rows = 0;
  int n_heads = 0;
  int head_dim = 0;
  int rotary_dim = 0;
  bool interleaved = false;
  bool operator==(const RopeArgs&) const = default;
};

// Keys and values into the cache.
struct StoreKvArgs {
  float* k = nullptr;        // [n_rows, n_kv_heads, head_dim]
  const float* v = nullptr;  // [n_rows, n_kv_heads, head_dim]
  const DeviceRow* rows = nullptr;
  Flags flags;
  int n_rows = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int layer = 0;
  bool operator==(const StoreKvArgs&) const = default;
};

// Rotates q and k, if q.cos_sin, then stores k and v. Without heads of q, only
// that.
struct RopeStoreKvArgs {
  RopeArgs q;
  StoreKvArgs kv;
  bool operator==(const RopeStoreKvArgs&) const = default;
};

struct AttentionArgs {
  const float* q = nullptr;  // [n_rows, n_heads, head_dim]
  float* out = nullptr;      // [n_rows, n_heads, head_dim]
  Quantized quantized;       // a11 of out, if quantized.q; then head_dim is a
                             // multiple of 64
  const DeviceRow* rows = nullptr;
  Flags flags;
  Flags input_flags;  // of quantized
  int n_rows = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int layer = 0;
  int window = 0;         // a row sees that many positions, its own the last; INT_MAX: all up to its own
  float score_scale = 0;  // c of section 7
  float score_limit = 0;  // T
  int rows_per_tile = 1;  // token rows that share a tile of 16 queries; they are
                          // rows of one cache
  int n_splits = 0;       // of the grid; blocks of splits that no row of theirs sees do nothing
  // Null: a block walks all splits of its tile. Otherwise a block a split,
  // whose sums are merged by a second kernel.
  std::int32_t* partial = nullptr;  // [n_rows * n_heads, n_splits, partial_ints(head_dim)],
                                    // a row's first split first
  bool operator==(const AttentionArgs&) const = default;
};
constexpr int partial_ints(int head_dim) {  // A of section 7, then m, R, the bits of e and 0
  return head_dim + 4;
}

// Many rows of one cache at ascending positions: 64 queries a thread block.
struct PromptArgs {
  AttentionArgs attention;  // rows_per_tile * (n_heads / n_kv_heads) <= 64
  bool operator==(const PromptArgs&) const = default;
};

// The same on compute capability 9.0: 128 queries.
struct PromptSm90Args {
  AttentionArgs attention;  // rows_per_tile * (n_heads / n_kv_heads) <= 128
  bool operator==(const PromptSm90Args&) const = default;
};

// Of a thread block; 0 where there is no such kernel.
int prompt_shared_bytes(int head_dim);
int prompt_sm90_shared_bytes(int head_dim);

// Rows of different caches: rotates their queries (attention.q, not written) and keys, stores keys and values, attends.
// A layer of a cache is in one such launch of a step at most: what lies before the new position is read early.
constexpr int kDecodeQueries = 8;  // of a thread block; they share a key-value head
struct DecodeArgs {
  AttentionArgs attention;  // rows_per_tile is 1, partial is there, as floats
  StoreKvArgs kv;
  const float* cos_sin = nullptr;  // [n_positions, rotary_dim / 2, 2]
  int rotary_dim = 0;
  bool interleaved = false;
  int* arrived = nullptr;  // [n_counters]: zeros, and zeros again afterwards
  // By plan():
  int n_blocks = 1;    // along the splits of a row and key-value head
  int n_stages = 1;    // splits that a thread block has in shared memory
  int fold_piece = 0;  // splits that a kernel of its own folds at once; 0: the last thread block folds
  bool operator==(const DecodeArgs&) const = default;
};

struct GpuExtent {
  int n_multiprocessors, shared_bytes;  // shared memory that a thread block may ask for
};
bool plan(DecodeArgs& args, const GpuExtent& gpu);  // false if a thread block does not fit
int n_counters(const DecodeArgs& args);             // of args.arrived, once there is a plan

cudaError_t launch(const RopeArgs& args, cudaStream_t stream);
cudaError_t launch(const RopeStoreKvArgs& args, cudaStream_t stream);
cudaError_t launch(const AttentionArgs& args, cudaStream_t stream);
cudaError_t launch(const PromptArgs& args, cudaStream_t stream);
cudaError_t launch(const PromptSm90Args& args, cudaStream_t stream);
cudaError_t launch(const DecodeArgs& args, cudaStream_t stream);

}  // namespace nibble::kernels::cuda
