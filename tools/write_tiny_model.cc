// Writes one of the small random models on which nibble is compared with llama.cpp (tools/llama_tiny_reference.py), or
// two layers of the shape of Llama 3 8B, whose width and height a GPU is held to (scripts/gpu_check.sh), or one with
// the keys and input scales of the contracts nc1-f16 and w4a4, or one of those contracts, or one
// with every block-quantized type of GGUF.
//
// usage: write_tiny_model llama|qwen2|qwen3|gemma3|gemma3_wide|linear|yarn|llama-8b|muser|nc1-f16|w4a4|kquant OUT.gguf
#include <fmt/format.h>

#include <string>
#include <vector>

#include "io/nvfp4_container.h"
#include "tests/engine/tiny_model.h"

namespace nibble::testing {
namespace {

void linear_scaling(GgufWriter& w) {
  w.add_string("llama.rope.scaling.type", "linear");
  w.add_f32("llama.rope.scaling.factor", 4);
}

void gemma3_scaling(GgufWriter& w) {  // of the layers without a window
  w.add_string("gemma3.rope.scaling.type", "linear");
  w.add_f32("gemma3.rope.scaling.factor", 8);
}

void yarn_scaling(GgufWriter& w) {
  w.add_string("llama.rope.scaling.type", "yarn");
  w.add_f32("llama.rope.scaling.factor", 4);
  w.add_u32("llama.rope.scaling.original_context_length", 128);
}

void w4a4_contract(GgufWriter& w) {
  w.add_string(kContractKey, "w4a4");
}

// Awkward sizes: K = 80, 112 and 208 end in a short block of 64, three or five query heads share one KV head, a head
// has 48 or 16 dimensions.
Status write(const std::string& name, const std::string& path) {
  if (name == "llama") return write_tiny_model_to({}, path);
  if (name == "qwen2") {
    return write_tiny_model_to({.architecture = "qwen2", .d_ff = 208, .n_heads = 5, .head_dim = 16, .own_head = true},
                               path);  // llama.cpp wants n_heads * head_dim = d_model of this family
  }
  if (name == "qwen3") {
    return write_tiny_model_to({.architecture = "qwen3", .n_heads = 4, .n_kv_heads = 2, .head_dim = 64}, path);
  }
  if (name == "gemma3") {  // a window shorter than the sequences, and a layer without one
    return write_tiny_model_to(
        {.architecture = "gemma3", .n_layers = 6, .seed = 4, .own_head = true, .window = 8, .metadata = gemma3_scaling},
        path);
  }
  if (name == "gemma3_wide") {  // so many layers scale their scores by another width
    return write_tiny_model_to({.architecture = "gemma3",
                                .n_layers = 62,
                                .d_model = 96,
                                .head_dim = 16,
                                .seed = 5,
                                .own_head = true,
                                .window = 8},
                               path);
  }
  if (name == "linear") return write_tiny_model_to({.seed = 2, .metadata = linear_scaling}, path);
  if (name == "yarn") return write_tiny_model_to({.seed = 3, .metadata = yarn_scaling}, path);
  if (name == "llama-8b") {  // K = 4096 and 14336
    return write_tiny_model_to({.d_model = 4096,
                                .d_ff = 14336,
                                .n_heads = 32,
                                .n_kv_heads = 8,
                                .head_dim = 128,
                                .context_length = 8192,
                                .seed = 4,
                                .own_head = true},
                               path);
  }
  if (name == "muser") return write_tiny_model_to({.muser_keys = true, .input_scales = true, .own_head = true}, path);
  if (name == "nc1-f16") {  // beyond a super-block of 256
    return write_tiny_model_to({.architecture = "qwen2", .d_ff = 304, .muser_keys = true}, path);
  }
  if (name == "kquant") {  // every block-quantized type in turn, the head among them
    return write_tiny_model_to(
        {.n_layers = 1, .d_model = 256, .d_ff = 256, .n_heads = 2, .lane = Lane::kKquant, .own_head = true}, path);
  }
  if (name == "w4a4") {
    return write_tiny_model_to({.muser_keys = true, .input_scales = true, .own_head = true, .metadata = w4a4_contract},
                               path);
  }
  return Error{
      .message = "there is no such model",
      .found = name,
      .expected = "llama, qwen2, qwen3, gemma3, gemma3_wide, linear, yarn, llama-8b, muser, nc1-f16, w4a4 or kquant"};
}

}  // namespace
}  // namespace nibble::testing

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: write_tiny_model NAME OUT.gguf\n");
    return 2;
  }
  const nibble::Status status = nibble::testing::write(argv[1], argv[2]);
  if (status.ok()) return 0;
  fmt::print(stderr, "write_tiny_model: {}\n", status.error().to_string());
  return 1;
}
