// What a CPU instruction set supplies: one function per piece of an op, small enough for one thread. The arguments are
// plain structs and pointers, and nothing here includes a std header with code in it, because the objects that fill a
// table are compiled for an instruction set that the rest of the program must not use (cmake/isa.cmake).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kv_split.h"

namespace nibble::kernels::cpu {

// Rows of a weight matrix are laid out and scheduled in tiles of 16, whatever the width of a vector is.
constexpr int kTileRows = 16;
// The most rows that a chunk of several tokens' activations meets before the next chunk.
constexpr int kGemmRows = 256;

// The most tokens that meet a record as it is read, without a panel.
constexpr int kMaxGemvTokens = 4;

// The longest row of w4a4: a sum in units of an eighth stays below 2^63.
constexpr int kMaxInputsW4A4 = 131072;
// Elements along K that share one d of a16q8.
constexpr int kSuperBlock = 256;

// Records of NVFP4 weights (nvfp4_tiles.h).
constexpr int kLineBytes = 64;
constexpr int kGroupsPerBlock = 4;
constexpr int kRecordScales = 8 * kLineBytes;  // offset of the line of scales
constexpr int kRecordBytes = 9 * kLineBytes;
constexpr int kUnitBias = 3;
constexpr int kWideMark = 0xFF;
constexpr int kQuadOrder[4] = {0, 2, 1, 3};

// A block of one token as two planes of 8 bits, q = 8 * high + low, each four elements in kQuadOrder. Both have the
// sign of q, so that none is -128.
constexpr int kPlaneMax = 127;
struct PlaneBlock {
  std::int8_t high[64];
  std::int8_t low[64];         // -7..7
  std::int32_t high_start[4];  // where the sum of a group starts: what an instruction set makes of the plane to
  std::int32_t low_start[4];   // cancel the offset of its unsigned weights
  std::int32_t high_words[4];  // sums of bytes 0, 1 and of bytes 2, 3 of a group's quads as two int16, for those that
  std::int32_t low_words[4];   // want them (quant_words.inl)
};

// Sums of a block's integers over its four groups of 16 and two halves of 32, which an int16 holds, and padding.
constexpr int kSumsPerBlock = 8;
// Block-quantized types of GGUF with records (quant_layout.h).
constexpr int kQuantTypes = 9;

// Integers of n_rows tokens, of a11 or of a16q8. A block of one token is 64 integers; a short last block is padded with
// zeros. a16q8 fills the high planes only, and repeats the d of a super-block for its blocks.
struct Activations {
  const std::int16_t* q;     // [n_blocks, n_rows, 64]
  const PlaneBlock* planes;  // [n_blocks, n_rows], the same, if n_rows <= kMaxGemvTokens or the table takes_planes
  const float* d;            // [n_blocks, n_rows]
  const std::int16_t* sums;  // [n_blocks, n_rows, kSumsPerBlock]; for QuantWeights only
  const float* x;            // [n_rows, n_in], what was quantized
  int n_rows;
  int n_in;
  int n_blocks;
};

struct Nvfp4Weights {
  const std::uint8_t* records;    // [n_tiles, n_blocks, kRecordBytes]
  const std::uint8_t* is_wide;    // [n_tiles]: has a block whose scales span too many octaves
  const std::uint8_t* certified;  // [n_tiles, n_blocks] (amx_certificate.h), if the table wants_certificates
  const std::uint8_t* codes;      // [n_out, n_in / 2], as in the file: for wide blocks
  const std::uint8_t* scales;     // [n_out, n_in / 16], E4M3
  float tensor_scale;
  float g;                // tensor_scale * 2^-10
  float input_scale_inv;  // of w4a4
  int n_out;
  int n_in;
};

// 16-bit floats as the contract's integers w_q, as many bytes as in the file.
struct Rows16Weights {
  const std::int16_t* records;  // [n_tiles, n_blocks, 32 pairs, 16 rows, 2]
  const std::uint8_t* unit;     // [n_tiles, n_blocks, 16]: 127 + exponent of the unit of w_q
  int n_out;
  int n_in;
};
constexpr int kRows16RecordBytes = 32 * kLineBytes;

// A record is 16 lines of four bytes a row, elements 4i + kQuadOrder[j], and one line of f16 scales, [2 halves, 16
// rows].
struct Q8Weights {
  const std::uint8_t* records;  // [n_tiles, n_blocks, kQ8RecordBytes]
  int n_out;
  int n_in;
};
constexpr int kQ8RecordScales = 16 * kLineBytes;
constexpr int kQ8RecordBytes = 17 * kLineBytes;

// E4M3FN rows. A record is 16 lines of four bytes a row, elements 4i + kQuadOrder[j], each byte with the exponent above
// sign and mantissa (fp8_byte).
struct Fp8Weights {
  const std::uint8_t* records;  // [n_tiles, n_blocks, kFp8RecordBytes]
  // [n_tiles, n_blocks]: bit i is set if line i of the record holds a small weight.
  const std::uint16_t* small_lines;
  const float* g;   // scale * 2^-9, [n_tiles, ceil(n_blocks / 2^scale_shift), 16 rows]
  int scale_shift;  // log2 of the blocks along K that share a scale
  int n_scales;     // along K
  int n_out;
  int n_in;
};
constexpr int kFp8RecordBytes = 16 * kLineBytes;
constexpr int kFp8LargeExponent = 4;  // weights with this exponent and more are "large" (linear_fp8.inl)
// Neither large nor zero.
constexpr bool fp8_is_small(std::uint8_t code) {
  return (code & 0x7F) != 0 && (code & 0x7F) < kFp8LargeExponent << 3;
}
constexpr std::uint8_t fp8_byte(std::uint8_t code) {
  return static_cast<std::uint8_t>((code & 0x78) << 1 | code >> 7 << 3 | (code & 7));
}

struct QuantWeights {
  const std::uint8_t* records;        // [n_tiles, n_blocks, record_bytes of the layout]
  const std::uint16_t* super_scales;  // [n_tiles, n_in / 256, 2, kTileRows]: d and m in f16; of super-blocks only
  int n_out;
  int n_in;
};

struct F32Weights {
  const float* values;  // [n_out, n_in]
  int n_out;
  int n_in;
};

// Rows [row_begin, row_end) of a linear layer, row_begin a multiple of kTileRows.
struct LinearJob {
  const float* bias;  // [n_out] or null
  float* out;         // [n_rows, n_out]
  float* scratch;     // linear_scratch_floats(n_rows, n_blocks) of this thread, or tile_scratch_floats if that is more
  int row_begin;
  int row_end;
};

// Accumulators [n_rows, kGemmRows], and a factor per token and block.
constexpr std::size_t linear_scratch_floats(int n_rows, int n_blocks) {
  return static_cast<std::size_t>(n_rows) * (kGemmRows + static_cast<std::size_t>(n_blocks));
}

// Heads that meet keys and values of one head together.
constexpr int kMaxJobHeads = 8;

// Some query heads of one token that share a key-value head.
struct AttentionJob {
  HeadShape shape;
  int n_heads;      // 1 to kMaxJobHeads
  const float* q;   // [n_heads, head_dim]
  KvSplits splits;  // of the key-value head
  int first_key;    // visible keys: [first_key, n_keys), at least one
  int n_keys;
  float score_scale;  // c of the contract
  float score_limit;  // T
  float* out;         // [n_heads, head_dim]
  float* scratch;     // attention_scratch_floats(head_dim) of this thread
};

// What a split of up to 128 keys adds to a head: integers, except for e. The sums of its values [head_dim] follow it.
struct SplitSums {
  std::int32_t m;
  std::int32_t r_sum;
  float e;
  std::int32_t padding[13];  // to a cache line

  std::int32_t* values() { return reinterpret_cast<std::int32_t*>(this + 1); }
  const std::int32_t* values() const { return reinterpret_cast<const std::int32_t*>(this + 1); }
};

// A head over the splits merged so far; its o stands where its output will.
struct HeadState {
  int m;
  float l;
};

constexpr std::size_t padded_head(int head_dim) {
  return (static_cast<std::size_t>(head_dim) + 63) / 64 * 64;
}
constexpr std::size_t split_sums_floats(int head_dim) {
  return sizeof(SplitSums) / sizeof(float) + padded_head(head_dim);
}
// A rotated head, the integers of queries, the sums of one split.
constexpr std::size_t attention_scratch_floats(int head_dim) {
  return (1 + kMaxJobHeads) * padded_head(head_dim) + kMaxJobHeads * split_sums_floats(head_dim);
}

// Functions that quantize return true where they met a non-finite value (contract, rule 4).
struct KernelTable {
  const char* isa;

  // Blocks of one token; q advances by `stride` integers a block, d and planes by stride / 64.
  // planes may be null.
  bool (*quantize_a11)(const float* x, int n_in, std::size_t stride, std::int16_t* q, PlaneBlock* planes, float* d);
  // The same for a16q8; non-finite is what f16 does not hold.
  bool (*quantize_a16q8)(const float* x, int n_in, std::size_t stride, std::int16_t* q, PlaneBlock* planes, float* d);
  // For the weights of one input scale: two planes of 64 a block.
  void (*quantize_w4a4)(const float* x, int n_in, float input_scale_inv, std::size_t stride, std::int16_t* q);
  // Sums of n_blocks blocks of one token's q; q advances by `stride` integers a block.
  void (*sum_groups)(const std::int16_t* q, int n_blocks, std::size_t stride, std::int16_t* sums);
  void (*linear_nvfp4)(const Nvfp4Weights&, const Activations&, const LinearJob&);
  void (*linear_nvfp4_a16q8)(const Nvfp4Weights&, const Activations&, const LinearJob&);  // units of super-blocks
  void (*linear_w4a4)(const Nvfp4Weights&, const Activations&, const LinearJob&);  // q: [n_blocks, n_rows, 2, 64]
  void (*linear_rows16)(const Rows16Weights&, const Activations&, const LinearJob&);
  void (*linear_q8_0)(const Q8Weights&, const Activations&, const LinearJob&);
  void (*linear_fp8)(const Fp8Weights&, const Activations&, const LinearJob&);
  void (*linear_quant[kQuantTypes])(const QuantWeights&, const Activations&, const LinearJob&);
  void (*linear_f32)(const F32Weights&, const Activations&, const LinearJob&);

  // A tile of n_rows rows [n_rows, n_in] as records [n_blocks, 32, 16, 2] and units [n_blocks, 16], zeroed before.
  bool (*pack_f16)(const std::uint16_t* rows, int n_rows, int n_in, std::int16_t* records, std::uint8_t* unit);
  bool (*pack_bf16)(const std::uint16_t* rows, int n_rows, int n_in, std::int16_t* records, std::uint8_t* unit);

  void (*embed_f16)(const std::uint16_t* row, int n, float* out);
  void (*embed_bf16)(const std::uint16_t* row, int n, float* out);
  void (*embed_q8_0)(const std::uint8_t* row, int n, float* out);

  void (*rms_norm)(const float* x, const float* weight, int n, float eps, float* out);
  void (*rope)(float* x, int n_heads, int head_dim, const float* cos_sin, int rotary_dim, bool interleaved);
  // A key and a value [head_dim] become position `at` of a split. scratch: attention_scratch_floats.
  bool (*store_kv)(const HeadShape&, const float* k, const float* v, float* scratch, const KvSplit&, int at);
  bool (*attention)(const AttentionJob&);
  // The same in two steps: splits [first, last) in any order and by any thread, then their merging from left to right.
  // sums is [last - first, n_heads, split_sums_floats], a split every `stride` floats.
  bool (*attention_splits)(const AttentionJob&, int first, int last, std::size_t stride, float* sums);
  void (*attention_merge)(const AttentionJob&, int first, int last, std::size_t stride, const float* sums,
                          HeadState* states /* [n_heads] */);
  void (*silu_mul)(const float* gate, const float* up, std::size_t n, float* out);
  void (*gelu_mul)(const float* gate, const float* up, std::size_t n, float* out);
  void (*scale)(float* x, float factor, std::size_t n);
  void (*add)(float* x, const float* y, std::size_t n);

  // a * b + c as this object's compiler flags make it: two roundings, unless something contracts (canary.h).
  float (*multiply_add_probe)(float a, float b, float c);
  std::uint64_t (*read_sum)(const void* data, std::size_t bytes);  // bandwidth: reads every byte once
  std::uint64_t (*dot_peak)(std::uint64_t n_ops);                  // peak.inl

  bool takes_planes = false;  // of more than kMaxGemvTokens tokens as well
  // Of instruction sets that add up NVFP4 in tiles of f32 (gemm_amx.inl).
  bool wants_certificates = false;
  std::size_t tile_scratch_floats = 0;
};

extern const KernelTable kScalarTable;
extern const KernelTable kAvx2Table;
extern const KernelTable kAvxVnniTable;
extern const KernelTable kAvx512Table;
extern const KernelTable kAmxTable;
extern const KernelTable kNeonTable;
extern const KernelTable kNeonDotTable;
extern const KernelTable kNeonI8mmTable;

}  // namespace nibble::kernels::cpu
