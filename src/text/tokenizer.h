// Text to token ids and back, exactly as the model's own tokenizer does it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/encoder.h"
#include "text/special_tokens.h"
#include "text/vocabulary.h"

namespace nibble::text {

struct EncodeOptions {
  // Control tokens written out in the text ("<|im_start|>") become those tokens. For text that a chat template made,
  // not for text of a user: there they stay the plain characters that they are.
  bool parse_special = false;
  // BOS before and EOS behind the text where the file asks for them. Off for a piece of a text, and for templates that
  // write BOS themselves.
  bool add_special = true;
  // Some vocabularies lack rare control characters (SmolLM2 has no token for byte 0x04). By default that is an error;
  // with this, such bytes are left out without a word, which is what most tokenizers do.
  bool drop_unencodable = false;
};

struct DecodeOptions {
  bool render_control = false;  // control tokens as their text; otherwise they render as nothing
  bool at_text_start = true;    // false when the ids go on from other text: its end decides about a leading space
};

class Tokenizer {
 public:
  // Refuses a vocabulary that contradicts itself; the Error names the metadata key. Takes about 0.2 s for 150,000
  // tokens.
  static Result<Tokenizer> create(Vocabulary vocabulary);
  Tokenizer(Tokenizer&&) noexcept = default;
  Tokenizer& operator=(Tokenizer&&) noexcept = default;

  // Thread-safe, linear in the text but for a logarithm. Refuses text that is not UTF-8, with the offset of the byte.
  Result<std::vector<std::int32_t>> encode(std::string_view text, EncodeOptions options = {}) const;

  // Valid UTF-8 whatever the ids; bytes that are none become U+FFFD. Every id must be in [0, vocab_size()).
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions options = {}) const;

  std::int32_t vocab_size() const { return static_cast<std::int32_t>(pieces_.size()); }
  bool contains(std::int64_t id) const { return id >= 0 && id < vocab_size(); }
  // What the token stands for, which may be a part of a UTF-8 sequence; of a control token its text.
  std::string_view token_bytes(std::int32_t id) const { return pieces_[checked(id)]; }
  // As the file writes it ("Ġthe", "▁the", "<0x0A>").
  const std::string& token_text(std::int32_t id) const { return vocabulary_.tokens[checked(id)]; }
  std::optional<std::int32_t> find(std::string_view token_text) const;

  bool is_control(std::int32_t id) const;                              // renders as nothing
  bool is_special(std::int32_t id) const;                              // control or user-defined
  bool is_eog(std::int32_t id) const { return is_eog_[checked(id)]; }  // a model that emits it has ended its answer
  std::optional<std::int32_t> bos() const { return bos_; }
  std::optional<std::int32_t> eos() const { return eos_; }
  bool adds_bos() const { return add_bos_; }
  // For a piece of a text that is run by itself: BOS in place of its first token, where this tokenizer adds BOS. A
  // model that expects it is out of its element for many positions without.
  void put_bos(std::span<std::int32_t> tokens) const {
    if (add_bos_ && bos_ && !tokens.empty()) tokens[0] = *bos_;
  }
  bool adds_eos() const { return add_eos_; }
  bool adds_space_prefix() const { return add_space_prefix_; }

  // SHA-256, in hex, of everything in the vocabulary that create() was given.
  const std::string& digest() const { return digest_; }

 private:
  Tokenizer(Vocabulary vocabulary, TokenIndex index);
  Status choose_special_tokens();
  Status build_encoder();
  void fill_eog();
  std::size_t checked(std::int32_t id) const {
    NIBBLE_CHECK(contains(id), "token id out of range");
    return static_cast<std::size_t>(id);
  }

  Vocabulary vocabulary_;  // without the merges, which the encoder holds in its own form
  TokenIndex index_;
  std::vector<std::string> pieces_;  // [vocab_size]
  SpecialTokens special_tokens_;
  std::unique_ptr<const Encoder> encoder_;
  std::vector<bool> is_eog_;  // [vocab_size]
  std::optional<std::int32_t> bos_, eos_;
  bool add_bos_ = false, add_eos_ = false, add_space_prefix_ = false;
  std::string digest_;
};

// Decodes one token after another. Text comes out as soon as it is complete: never a part of a UTF-8 sequence.
class StreamDecoder {
 public:
  // The tokenizer must outlive it.
  explicit StreamDecoder(const Tokenizer& tokenizer, DecodeOptions options = {})
      : tokenizer_(&tokenizer), options_(options), at_text_start_(options.at_text_start) {}

  // The text that this token completes, often empty.
  std::string push(std::int32_t id);
  // At the end: U+FFFD for an unfinished sequence, otherwise nothing. The decoder starts afresh.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  bool at_text_start_;
  std::string pending_;  // at most 3 bytes between calls
};

}  // namespace nibble::text
