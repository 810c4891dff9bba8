// Qwen3, dense: as Qwen2 without biases, and with a norm of every head of q and k.
#include "model/architecture.h"

namespace nibble::model {
namespace {

constexpr std::string_view kRefused[] = {"expert_count", "attention.sliding_window"};

}  // namespace

const Architecture kArchQwen3 = {
    .name = "qwen3",
    .rope_interleaved = false,
    .qk_norm = true,
    .refused_keys = kRefused,
};

}  // namespace nibble::model
