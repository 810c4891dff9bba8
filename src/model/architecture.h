// A model family as a table: what differs between families that share the one forward pass of model/transformer.
// A new family is one arch_<family>.cc and one line in architecture.cc.
#pragma once

#include <span>
#include <string_view>

namespace nibble::model {

enum class Presence { kNever, kOptional, kRequired };

struct Architecture {
  std::string_view name;                    // general.architecture
  bool rope_interleaved = false;            // pairs (2i, 2i+1), otherwise (i, i + rotary_dim / 2)
  Presence qkv_bias = Presence::kNever;     // attn_{q,k,v}.bias
  Presence output_bias = Presence::kNever;  // attn_output.bias
  // Keys under "<name>." that nibble has no arithmetic for: a value other than 0/false is refused.
  std::span<const std::string_view> refused_keys = {};
};

const Architecture* find_architecture(std::string_view name);  // nullptr: unknown
std::span<const Architecture* const> architectures();

extern const Architecture kArchLlama;
extern const Architecture kArchQwen2;

}  // namespace nibble::model
