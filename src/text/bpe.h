// Byte-level BPE: pieces of the pre-tokenizer, each a row of bytes, joined pair by pair in the order of the merges.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/encoder.h"
#include "text/pretokenizer.h"
#include "text/vocabulary.h"

namespace nibble::text {

// Vocabularies of this kind write each byte as one printable character ("Ġ" is the space). Returns the bytes that
// `token` stands for, or `token` itself when a character of it is none of the 256.
std::string bytes_of_token(std::string_view token);
// The character that stands for a byte.
std::string character_of_byte(std::uint8_t byte);

// The merges, as a matrix of ids in compressed rows: no hash, so no vocabulary can make it slow.
class MergeTable {
 public:
  struct Merge {
    std::int32_t right, rank, merged;
  };
  static Result<MergeTable> create(const Vocabulary& vocabulary, const TokenIndex& index);
  // The merge of two tokens, or nullptr.
  const Merge* find(std::int32_t left, std::int32_t right) const;

 private:
  std::vector<std::uint32_t> row_begin_;  // [n_tokens + 1]
  std::vector<Merge> merges_;             // [n_merges], by left id, then by right id
};

class BpeEncoder final : public Encoder {
 public:
  // `pieces[id]` are the bytes of token id; the views must outlive the encoder.
  static Result<std::unique_ptr<const Encoder>> create(const Vocabulary& vocabulary, const TokenIndex& index,
                                                       const std::vector<std::string>& pieces,
                                                       Pretokenizer pretokenizer);
  Status encode(const Fragment& fragment, std::vector<std::int32_t>* ids) const override;

 private:
  struct Scratch;
  BpeEncoder(Pretokenizer pretokenizer, MergeTable merges)
      : pretokenizer_(std::move(pretokenizer)), merges_(std::move(merges)) {}
  Status load_bytes(const Fragment& fragment, std::string_view piece, Scratch* scratch) const;
  void merge(Scratch* scratch) const;

  Pretokenizer pretokenizer_;
  MergeTable merges_;
  std::array<std::int32_t, 256> byte_ids_{};  // -1: no token
  TokenIndex whole_pieces_;                   // bytes to id; filled only for rules that ignore merges
};

}  // namespace nibble::text
