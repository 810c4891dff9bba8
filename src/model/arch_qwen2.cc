// Qwen2 and Qwen2.5, dense: biases on q, k and v; rotary pairs are the halves of a head.
#include "model/architecture.h"

namespace nibble::model {
namespace {

constexpr NeutralValue kNeutral[] = {{"attention.sliding_window", 0}};

}  // namespace

const Architecture kArchQwen2 = {
    .name = "qwen2",
    .rope_interleaved = false,
    .qkv_bias = Presence::kRequired,
    .output_bias = Presence::kNever,
    .neutral_values = kNeutral,
};

}  // namespace nibble::model
