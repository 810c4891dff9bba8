// Qwen3, dense: as Qwen2 without biases, and with a norm of every head of q and k.
#include "model/architecture.h"

namespace nibble::model {
namespace {

constexpr NeutralValue kNeutral[] = {{"attention.sliding_window", 0}};

}  // namespace

const Architecture kArchQwen3 = {
    .name = "qwen3",
    .rope_interleaved = false,
    .qk_norm = true,
    .neutral_values = kNeutral,
};

}  // namespace nibble::model
