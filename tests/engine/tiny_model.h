// A small random model of a family, written as a native NVFP4 container: awkward sizes (K = 80, three heads over one KV
// head), biases, a 16-bit tied head, and a byte-level vocabulary. Deterministic: the same spec gives the same file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf_writer.h"
#include "io/lane.h"

namespace nibble::testing {

struct TinySpec {
  std::string architecture = "llama";
  std::uint32_t n_layers = 2;
  std::uint32_t d_model = 80;
  std::uint32_t d_ff = 112;
  std::uint32_t n_heads = 3;
  std::uint32_t n_kv_heads = 1;
  std::uint32_t head_dim = 48;
  std::uint32_t context_length = 512;
  std::uint64_t seed = 1;
  Lane lane = Lane::kNvfp4;          // kKquant: every block-quantized type in turn; kMixed: every other matrix
  bool muser_keys = false;           // those of the first lane instead of nibble.contract: nc1-f16
  bool input_scales = false;         // of every NVFP4 weight, as w4a4 wants them
  bool own_head = false;             // an NVFP4 output.weight
  bool fp8 = false;                  // attention and head in FP8, with each kind of scales; a tied head's table too
  float norm_weight = 1.0F;          // of every norm; infinity makes activations non-finite
  std::uint32_t vocab_extra = 0;     // rows of the embedding table beyond the vocabulary
  std::uint32_t window = 0;          // positions that a layer with a window sees; 0: no such key
  std::uint32_t window_pattern = 0;  // of so many layers all but the last have it; 0: no such key
  float freq_base = 10000;           // of rope in gemma3, which must name it; 0: no such key
  std::string skip_tensor = {};      // left out
  std::string extra_tensor = {};     // a tensor of no use, added
  std::string chat_template =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  std::function<void(GgufWriter&)> metadata = {};  // further keys
};

// An array of I32, which the writer has no call for.
void add_int_array(GgufWriter& writer, std::string_view key, const std::vector<std::int32_t>& values);

// The folder of this process's test files; removed at exit.
std::string test_folder();
// Writes the model into test_folder() and returns its path.
std::string write_tiny_model(const TinySpec& spec, const std::string& name);
Status write_tiny_model_to(const TinySpec& spec, const std::string& path);

}  // namespace nibble::testing
