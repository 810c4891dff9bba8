// A model family as a table: what differs between families that share the one forward pass of model/transformer.
// A new family is one arch_<family>.cc and one line in architecture.cc.
#pragma once

#include <span>
#include <string_view>

namespace nibble::model {

enum class Presence { kNever, kOptional, kRequired };
enum class Gate { kSilu, kGelu };

// A value of a key under "<name>." with which a model is what the one forward pass computes; any other is refused.
// Several values of a key are several entries. Flags count as 0 and 1.
struct NeutralValue {
  std::string_view key;
  double value = 0;
  std::string_view text = {};  // of a key that holds text
};

struct Architecture {
  std::string_view name;                    // general.architecture
  bool rope_interleaved = false;            // pairs (2i, 2i+1), otherwise (i, i + rotary_dim / 2)
  Presence qkv_bias = Presence::kNever;     // attn_{q,k,v}.bias
  Presence output_bias = Presence::kNever;  // attn_output.bias
  bool qk_norm = false;                     // attn_{q,k}_norm: every head of q and k has a norm before rope
  bool post_norms = false;                  // post_{attention,ffw}_norm: of a block's output, before it is added
  bool scales_embeddings = false;           // by sqrt(d_model)
  Gate gate = Gate::kSilu;
  // Of every `window_period` layers all but the last see attention.sliding_window positions only, and have a rope of
  // their own, of this base and without scaling. 0: the family has no windows.
  int window_period = 0;
  double window_freq_base = 0;
  bool requires_freq_base = false;   // rope.freq_base: the family's own is not GGUF's default of 10,000
  int n_layers_scaled_by_width = 0;  // a model of so many layers scales scores by 1 / sqrt(d_model / n_heads)
  // Keys under "<name>." that nibble does not read, besides those of every family (metadata_keys.cc).
  std::span<const NeutralValue> neutral_values = {};
  std::span<const std::string_view> unrelated_prefixes = {};  // no such key has a say in the answer to a text
};

const Architecture* find_architecture(std::string_view name);  // nullptr: unknown
std::span<const Architecture* const> architectures();

extern const Architecture kArchLlama;
extern const Architecture kArchQwen2;
extern const Architecture kArchQwen3;
extern const Architecture kArchGemma3;

}  // namespace nibble::model
