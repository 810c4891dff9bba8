// Vocabularies that fit on a page, for tests and for the fuzz target.
#pragma once

#include "text/bpe.h"
#include "text/vocabulary.h"

namespace nibble::text {

// Byte-level: ids 0 to 255 are the bytes; then what the merges make; then special tokens.
inline Vocabulary small_bpe() {
  Vocabulary v;
  v.model = "gpt2";
  v.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) v.tokens.push_back(character_of_byte(static_cast<std::uint8_t>(byte)));
  for (const char* token : {"ll", "he", "hell", "Ġt"}) v.tokens.push_back(token);
  v.merges = {"l l", "h e", "he ll", "Ġ t"};
  v.token_types.assign(v.tokens.size(), 1);
  const auto special = [&](const char* text, TokenType type) {
    v.tokens.push_back(text);
    v.token_types.push_back(static_cast<std::int32_t>(type));
    return static_cast<std::int64_t>(v.tokens.size()) - 1;
  };
  v.bos_id = special("<|endoftext|>", TokenType::kControl);
  v.eos_id = special("<|im_end|>", TokenType::kControl);
  special("<tool>", TokenType::kUserDefined);
  special("<tool>>", TokenType::kUserDefined);
  return v;
}

inline std::int32_t small_bpe_id(std::string_view token) {
  const Vocabulary v = small_bpe();
  for (std::size_t id = 0; id < v.tokens.size(); ++id) {
    if (v.tokens[id] == token) return static_cast<std::int32_t>(id);
  }
  return -1;
}

// SentencePiece: unknown, BOS, EOS, the 256 byte tokens, then pieces of falling score.
inline Vocabulary small_spm() {
  Vocabulary v;
  v.model = "llama";
  const auto add = [&](std::string text, float score, TokenType type) {
    v.tokens.push_back(std::move(text));
    v.scores.push_back(score);
    v.token_types.push_back(static_cast<std::int32_t>(type));
  };
  add("<unk>", 0, TokenType::kUnknown);
  add("<s>", 0, TokenType::kControl);
  add("</s>", 0, TokenType::kControl);
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    add(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">", 0, TokenType::kByte);
  }
  float score = 0;
  for (const char* piece : {"ll", "he", "▁he", "▁hell", "hell", "<s", "▁", "h", "e", "l", "o", "<", ">", "s"}) {
    add(piece, score -= 1, TokenType::kNormal);
  }
  v.bos_id = 1;
  v.eos_id = 2;
  v.unk_id = 0;
  return v;
}

}  // namespace nibble::text
