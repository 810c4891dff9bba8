// Llama and its relatives (SmolLM2, Llama 2/3, Mistral 7B): GGUF stores the rows of q and k in interleaved rotary
// order.
#include "model/architecture.h"

namespace nibble::model {
namespace {

constexpr NeutralValue kNeutral[] = {
    {"attention.sliding_window", 0},
    {"logit_scale", 0},
    {"logit_scale", 1},
    {"residual_scale", 0},
    {"residual_scale", 1},
    {"embedding_scale", 0},
    {"embedding_scale", 1},
    {"attention.clamp_kqv", 0},
    {"tensor_data_layout", 0, "Meta AI original pth"}};  // rows of q and k as every file of the family has them

}  // namespace

const Architecture kArchLlama = {
    .name = "llama",
    .rope_interleaved = true,
    .qkv_bias = Presence::kOptional,
    .output_bias = Presence::kOptional,
    .neutral_values = kNeutral,
};

}  // namespace nibble::model
