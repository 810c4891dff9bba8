#include "text/vocabulary.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/printable.h"
#include "base/sha256.h"
#include "base/utf8.h"

namespace nibble::text {
namespace {

// Longer control or user-defined tokens are refused: they bound the cost of looking for them at every byte of a text.
constexpr std::size_t kMaxSpecialLength = 1024;

Status check_sizes(const Vocabulary& v) {
  if (v.tokens.empty()) {
    return Error{.message = "the vocabulary has no tokens", .key = "tokenizer.ggml.tokens"};
  }
  if (v.tokens.size() > std::numeric_limits<std::int32_t>::max() / 2) {
    return Error{.message = "the vocabulary is too large",
                 .key = "tokenizer.ggml.tokens",
                 .found = fmt::format("{} tokens", v.tokens.size()),
                 .expected = "ids that fit in 30 bits"};
  }
  const auto same_size = [&](const char* key, std::size_t size) -> Status {
    if (size == v.tokens.size()) return ok_status();
    return Error{.message = "the vocabulary's arrays differ in length",
                 .key = key,
                 .found = fmt::format("{} entries", size),
                 .expected = fmt::format("{}, one for each of tokenizer.ggml.tokens", v.tokens.size())};
  };
  if (!v.token_types.empty()) NIBBLE_TRY(same_size("tokenizer.ggml.token_type", v.token_types.size()));
  if (v.model == "llama" || !v.scores.empty()) NIBBLE_TRY(same_size("tokenizer.ggml.scores", v.scores.size()));
  return ok_status();
}

Status check_id(const Vocabulary& v, const char* key, std::optional<std::int64_t> id) {
  if (!id || (*id >= 0 && static_cast<std::uint64_t>(*id) < v.tokens.size())) return ok_status();
  return Error{.message = "a special token's id is out of range",
               .key = key,
               .found = fmt::format("{}", *id),
               .expected = fmt::format("0 to {}", v.tokens.size() - 1)};
}

Status check_ids(const Vocabulary& v) {
  NIBBLE_TRY(check_id(v, "tokenizer.ggml.bos_token_id", v.bos_id));
  NIBBLE_TRY(check_id(v, "tokenizer.ggml.eos_token_id", v.eos_id));
  NIBBLE_TRY(check_id(v, "tokenizer.ggml.unknown_token_id", v.unk_id));
  NIBBLE_TRY(check_id(v, "tokenizer.ggml.padding_token_id", v.pad_id));
  NIBBLE_TRY(check_id(v, "tokenizer.ggml.eot_token_id", v.eot_id));
  return check_id(v, "tokenizer.ggml.eom_token_id", v.eom_id);
}

Status check_token(const Vocabulary& v, std::size_t id) {
  if (!v.token_types.empty() && (v.token_types[id] < 0 || v.token_types[id] > 6)) {
    return Error{.message = fmt::format("token {} has an unknown type", id),
                 .key = "tokenizer.ggml.token_type",
                 .found = fmt::format("{}", v.token_types[id]),
                 .expected = "0 (undefined) to 6 (byte)"};
  }
  if (!v.scores.empty() && std::isnan(v.scores[id])) {
    return Error{.message = fmt::format("the score of token {} is not a number", id), .key = "tokenizer.ggml.scores"};
  }
  if (find_invalid_utf8(v.tokens[id]) != std::string_view::npos) {
    return Error{.message = fmt::format("token {} is not valid UTF-8", id),
                 .key = "tokenizer.ggml.tokens",
                 .found = quoted(v.tokens[id])};
  }
  const TokenType type = v.type(static_cast<std::int32_t>(id));
  const bool special = type == TokenType::kControl || type == TokenType::kUserDefined || type == TokenType::kUnknown;
  if (special && v.tokens[id].size() > kMaxSpecialLength) {
    return Error{.message = fmt::format("special token {} is too long", id),
                 .key = "tokenizer.ggml.tokens",
                 .found = fmt::format("{} bytes", v.tokens[id].size()),
                 .expected = fmt::format("at most {}", kMaxSpecialLength)};
  }
  return ok_status();
}

// Collects what is hashed, so that SHA-256 is fed large pieces: 300,000 short strings cost more in calls than in bytes.
class CanonicalWriter {
 public:
  void number(std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) buffer_.push_back(static_cast<char>(value >> shift));
    if (buffer_.size() > (1 << 16)) flush();
  }
  void string(const std::string& text) {
    number(text.size());
    buffer_ += text;
  }
  void strings(const std::vector<std::string>& list) {
    number(list.size());
    for (const std::string& text : list) string(text);
  }
  // Absent is 0; a value v is 1 followed by v, so that no value looks like absence.
  template <typename T>
  void optional(const std::optional<T>& value) {
    number(value.has_value());
    if (value) number(static_cast<std::uint64_t>(*value));
  }
  std::string finish() {
    flush();
    return to_hex(hash_.finish());
  }

 private:
  void flush() {
    hash_.update(buffer_);
    buffer_.clear();
  }
  Sha256 hash_;
  std::string buffer_;
};

}  // namespace

Status validate(const Vocabulary& vocabulary) {
  NIBBLE_TRY(check_sizes(vocabulary));
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) NIBBLE_TRY(check_token(vocabulary, id));
  return check_ids(vocabulary);
}

Result<TokenIndex> index_tokens(const Vocabulary& vocabulary) {
  TokenIndex index;
  index.reserve(vocabulary.tokens.size());
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.tokens[id].empty()) continue;
    const auto [other, added] = index.emplace(vocabulary.tokens[id], static_cast<std::int32_t>(id));
    if (!added) {
      return Error{.message = "a token stands in the vocabulary twice",
                   .key = "tokenizer.ggml.tokens",
                   .found = fmt::format("{} with ids {} and {}", quoted(vocabulary.tokens[id]), other->second, id),
                   .expected = "distinct tokens"};
    }
  }
  return index;
}

std::string digest(const Vocabulary& v) {
  CanonicalWriter out;
  out.string("nibble tokenizer 1");
  out.string(v.model);
  out.string(v.pre);
  out.strings(v.tokens);
  out.number(v.scores.size());
  for (const float score : v.scores) out.number(std::bit_cast<std::uint32_t>(score));
  out.number(v.token_types.size());
  for (const std::int32_t type : v.token_types) out.number(static_cast<std::uint32_t>(type));
  out.strings(v.merges);
  for (const auto& id : {v.bos_id, v.eos_id, v.unk_id, v.pad_id, v.eot_id, v.eom_id}) out.optional(id);
  for (const auto& flag : {v.add_bos, v.add_eos, v.add_space_prefix}) out.optional(flag);
  return out.finish();
}

std::string quoted(std::string_view text) {
  return '"' + printable(text, 40) + '"';
}

}  // namespace nibble::text
