// What becomes of each tensor of a source model in the native container.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/gguf.h"

namespace nibble {

// Format of output.weight. kF16 and kKeep leave a tied head tied; for the others a model without a head of its own gets
// one. kKeep copies head and embedding byte for byte, whatever their types; the others write the embedding in 16 bits.
enum class HeadFormat { kF16, kKeep, kQ8_0, kFp8, kNvfp4 };

// Format of the matrices of attention; the published mixed checkpoints have them in FP8.
enum class AttentionFormat { kNvfp4, kFp8 };

struct TensorPlan {
  TensorView source;
  std::string name;           // in the output; a tied head is written from token_embd.weight
  DType dtype = DType::kF32;  // kNVFP4_E2M1, kF8_E4M3FN, kF32, kF16, kBF16, kQ8_0, or the source's own
  bool verbatim = false;      // the source's bytes are copied
  std::string note;           // why a linear layer was not quantized
};

// Fails on what cannot be quantized: a source that is NVFP4 already, a type without a decoder, an impossible head.
Result<std::vector<TensorPlan>> plan_tensors(const GgufFile& source, HeadFormat head, AttentionFormat attention);

// "attn_q" for "blk.3.attn_q.weight", "output" for "output.weight".
std::string tensor_kind(std::string_view name);

}  // namespace nibble
