// Llama and its relatives (SmolLM2, Llama 2/3, Mistral 7B): GGUF stores the rows of q and k in interleaved rotary
// order.
#include "model/architecture.h"

namespace nibble::model {
namespace {

constexpr std::string_view kRefused[] = {
    "expert_count", "attention.sliding_window", "attention.clamp_kqv", "attention.scale",
    "logit_scale",  "residual_scale",           "embedding_scale"};

}  // namespace

const Architecture kArchLlama = {
    .name = "llama",
    .rope_interleaved = true,
    .qkv_bias = Presence::kOptional,
    .output_bias = Presence::kOptional,
    .refused_keys = kRefused,
};

}  // namespace nibble::model
