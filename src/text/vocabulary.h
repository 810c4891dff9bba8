// What a GGUF file says about its tokenizer, as plain data: whoever reads the file fills it, Tokenizer::create judges
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace nibble::text {

// The values of tokenizer.ggml.token_type.
enum class TokenType : std::int32_t {
  kUndefined = 0,  // treated as normal
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // shapes the conversation; only parse_special text can produce it, and it renders as nothing
  kUserDefined = 4,  // ordinary text that is always one token
  kUnused = 5,
  kByte = 6,  // "<0xNN>", the byte fallback
};

struct Vocabulary {
  std::string model;                      // tokenizer.ggml.model: "gpt2" (byte-level BPE) or "llama" (SentencePiece)
  std::string pre;                        // tokenizer.ggml.pre, empty when the key is absent; see pretokenizer.h
  std::vector<std::string> tokens;        // tokenizer.ggml.tokens; the id is the index
  std::vector<float> scores;              // tokenizer.ggml.scores; needed by "llama" only
  std::vector<std::int32_t> token_types;  // tokenizer.ggml.token_type; empty: all normal
  std::vector<std::string> merges;        // tokenizer.ggml.merges, "left right", best first; needed by "gpt2" only
  std::optional<std::int64_t> bos_id;     // tokenizer.ggml.bos_token_id
  std::optional<std::int64_t> eos_id;     // tokenizer.ggml.eos_token_id
  std::optional<std::int64_t> unk_id;     // tokenizer.ggml.unknown_token_id
  std::optional<std::int64_t> pad_id;     // tokenizer.ggml.padding_token_id
  std::optional<std::int64_t> eot_id;     // tokenizer.ggml.eot_token_id
  std::optional<std::int64_t> eom_id;     // tokenizer.ggml.eom_token_id
  std::optional<bool> add_bos;            // tokenizer.ggml.add_bos_token
  std::optional<bool> add_eos;            // tokenizer.ggml.add_eos_token
  std::optional<bool> add_space_prefix;   // tokenizer.ggml.add_space_prefix; "llama" only

  TokenType type(std::int32_t id) const {
    return token_types.empty() ? TokenType::kNormal : static_cast<TokenType>(token_types[static_cast<std::size_t>(id)]);
  }
};

// Token text to id. The keys are views of the vocabulary's strings, which must outlive it.
using TokenIndex = std::unordered_map<std::string_view, std::int32_t>;

// Refuses what no tokenizer can be built on: no tokens, sizes that differ, unknown types, ids out of range, NaN scores,
// a special token of no use. Error::tensor holds the metadata key.
Status validate(const Vocabulary& vocabulary);

// Refuses duplicates. Empty tokens are left out: no text can produce them.
Result<TokenIndex> index_tokens(const Vocabulary& vocabulary);

// SHA-256, in hex, over every field above in order, each string and list preceded by its length (u64, little-endian).
std::string digest(const Vocabulary& vocabulary);

// For messages: in quotes, unprintable bytes escaped, cut after 40 bytes.
std::string quoted(std::string_view text);

}  // namespace nibble::text
