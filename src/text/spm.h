// SentencePiece-style BPE, tokenizer.ggml.model "llama": no pre-tokenizer; spaces are written "▁"; of all neighbours
// whose joined text is a token, the one with the best score joins first; what is no token falls back to bytes.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/encoder.h"
#include "text/vocabulary.h"

namespace nibble::text {

// "▁" U+2581, which stands for a space in token texts.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// The value of a "<0xNN>" token, or -1.
int byte_of_token(std::string_view token);

class SpmEncoder final : public Encoder {
 public:
  // The vocabulary must outlive the encoder and stay where it is.
  static Result<std::unique_ptr<const Encoder>> create(const Vocabulary& vocabulary, bool add_space_prefix);
  Status encode(const Fragment& fragment, std::vector<std::int32_t>* ids) const override;

 private:
  struct Scratch;
  explicit SpmEncoder(const Vocabulary& vocabulary, bool add_space_prefix);
  std::int32_t find(std::string_view text) const;
  Status encode_word(const Fragment& fragment, std::string_view word, Scratch* scratch,
                     std::vector<std::int32_t>* ids) const;
  void merge(Scratch* scratch) const;
  Status emit(const Fragment& fragment, std::string_view symbol, std::vector<std::int32_t>* ids) const;

  TokenIndex ordinary_;  // tokens that text may become: no control, unknown or byte tokens
  std::vector<float> scores_;
  std::array<std::int32_t, 256> byte_ids_;  // -1: no token
  std::int32_t unknown_id_ = -1;
  std::size_t longest_ = 0;  // bytes of the longest ordinary token
  bool add_space_prefix_;
  bool words_are_apart_ = true;  // no token goes on after a space mark that follows something else
};

}  // namespace nibble::text
