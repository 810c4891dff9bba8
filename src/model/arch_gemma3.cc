// Gemma 3, text: scaled embeddings, norms before and after each block and of every head of q and k, GELU gates, and
// five layers with a sliding window for one without. GGUF stores its norm weights with the family's 1 added.
#include "model/architecture.h"

namespace nibble::model {
namespace {

// Some converters keep the keys of the image side in a file of the text model.
constexpr std::string_view kImages[] = {"vision.", "mm."};

}  // namespace

const Architecture kArchGemma3 = {
    .name = "gemma3",
    .rope_interleaved = false,
    .qk_norm = true,
    .post_norms = true,
    .scales_embeddings = true,
    .gate = Gate::kGelu,
    .window_period = 6,
    .window_freq_base = 10000,
    .requires_freq_base = true,
    .n_layers_scaled_by_width = 62,
    .unrelated_prefixes = kImages,
};

}  // namespace nibble::model
