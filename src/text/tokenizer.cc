#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/utf8.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/spm.h"

namespace nibble::text {
namespace {

// Far beyond any model's context. It bounds what merging can need: about 32 bytes for each byte of one piece.
constexpr std::size_t kMaxText = std::size_t{64} << 20;

// Tokens with which the public families end an answer, known by their text because files name only one or two of them.
// The last row ends a file rather than an answer: a code model that goes on after it invents the next file.
constexpr std::array<std::string_view, 24> kEogTexts = {"<|eot_id|>",      "<|im_end|>",
                                                        "<|end|>",         "<|return|>",
                                                        "<|call|>",        "<|endoftext|>",
                                                        "<end_of_turn>",   "<|eom_id|>",
                                                        "<|end_of_text|>", "<end_of_utterance>",
                                                        "<eos>",           "</s>",
                                                        "<EOT>",           "[EOT]",
                                                        "[EOS]",           "<turn|>",
                                                        "<|flush|>",       "<|calls|>",
                                                        "<|fim_pad|>",     "<fim_pad>",
                                                        "<|repo_name|>",   "<reponame>",
                                                        "<|file_sep|>",    "<｜end▁of▁sentence｜>"};

// The bytes that the token stands for.
std::string piece_of(const Vocabulary& vocabulary, std::int32_t id) {
  const std::string& text = vocabulary.tokens[static_cast<std::size_t>(id)];
  const bool spm = vocabulary.model == "llama";
  switch (vocabulary.type(id)) {
    case TokenType::kControl:
    case TokenType::kUnknown:
      return text;
    case TokenType::kByte:
      if (const int byte = byte_of_token(text); byte >= 0) return std::string(1, static_cast<char>(byte));
      return text;
    case TokenType::kUserDefined:
      if (!spm) return text;
      break;
    default:
      if (!spm) return bytes_of_token(text);
  }
  std::string piece = text;
  for (std::size_t at = 0; (at = piece.find(kSpaceMark, at)) != std::string::npos; ++at) {
    piece.replace(at, kSpaceMark.size(), " ");
  }
  return piece;
}

std::optional<std::int32_t> to_id(std::optional<std::int64_t> id) {
  return id ? std::optional(static_cast<std::int32_t>(*id)) : std::nullopt;
}

}  // namespace

Tokenizer::Tokenizer(Vocabulary vocabulary, TokenIndex index)
    : vocabulary_(std::move(vocabulary)), index_(std::move(index)), special_tokens_(vocabulary_) {}

Result<Tokenizer> Tokenizer::create(Vocabulary vocabulary) {
  if (vocabulary.model != "gpt2" && vocabulary.model != "llama") {
    return Error{.message = "unsupported kind of tokenizer",
                 .key = "tokenizer.ggml.model",
                 .found = quoted(vocabulary.model),
                 .expected = "\"gpt2\" (byte-level BPE) or \"llama\" (SentencePiece)"};
  }
  NIBBLE_TRY(validate(vocabulary));
  NIBBLE_ASSIGN(TokenIndex index, index_tokens(vocabulary));
  Tokenizer tokenizer(std::move(vocabulary), std::move(index));
  const std::size_t size = tokenizer.vocabulary_.tokens.size();
  tokenizer.pieces_.reserve(size);
  for (std::size_t id = 0; id < size; ++id) {
    tokenizer.pieces_.push_back(piece_of(tokenizer.vocabulary_, static_cast<std::int32_t>(id)));
  }
  tokenizer.digest_ = text::digest(tokenizer.vocabulary_);
  NIBBLE_TRY(tokenizer.build_encoder());
  NIBBLE_TRY(tokenizer.choose_special_tokens());
  tokenizer.fill_eog();
  tokenizer.vocabulary_.merges = {};
  return tokenizer;
}

// Defaults of absent keys, as llama.cpp has them: "llama" adds BOS and a space prefix; "gpt2" adds BOS where its
// pre-tokenizer's family does, and never a prefix; neither adds EOS.
Status Tokenizer::build_encoder() {
  if (vocabulary_.model == "llama") {
    add_bos_ = vocabulary_.add_bos.value_or(true);
    add_space_prefix_ = vocabulary_.add_space_prefix.value_or(true);
    NIBBLE_ASSIGN(encoder_, SpmEncoder::create(vocabulary_, add_space_prefix_));
  } else {
    NIBBLE_ASSIGN(Pretokenizer pretokenizer, Pretokenizer::create(vocabulary_.pre));
    add_bos_ = vocabulary_.add_bos.value_or(pretokenizer.default_add_bos());
    NIBBLE_ASSIGN(encoder_, BpeEncoder::create(vocabulary_, index_, pieces_, std::move(pretokenizer)));
  }
  add_eos_ = vocabulary_.add_eos.value_or(false);
  return ok_status();
}

Status Tokenizer::choose_special_tokens() {
  bos_ = to_id(vocabulary_.bos_id);
  eos_ = to_id(vocabulary_.eos_id);
  // SentencePiece's own numbering, where files rely on it without saying so.
  const auto conventional = [&](std::int32_t id, std::string_view text) -> std::optional<std::int32_t> {
    if (vocabulary_.model != "llama" || !contains(id) || token_text(id) != text) return std::nullopt;
    return id;
  };
  if (!bos_) bos_ = conventional(1, "<s>");
  if (!eos_) eos_ = conventional(2, "</s>");
  if (add_bos_ && !bos_) {
    return Error{.message = "BOS shall be added, but there is none",
                 .key = "tokenizer.ggml.bos_token_id",
                 .expected = "an id, or tokenizer.ggml.add_bos_token = false"};
  }
  if (add_eos_ && !eos_) {
    return Error{.message = "EOS shall be added, but there is none",
                 .key = "tokenizer.ggml.eos_token_id",
                 .expected = "an id, or tokenizer.ggml.add_eos_token = false"};
  }
  return ok_status();
}

void Tokenizer::fill_eog() {
  is_eog_.assign(pieces_.size(), false);
  const auto set = [&](std::optional<std::int32_t> id, bool value) {
    if (id) is_eog_[static_cast<std::size_t>(*id)] = value;
  };
  const auto special = [&](std::string_view text) -> std::optional<std::int32_t> {
    const auto id = find(text);
    return id && is_special(*id) ? id : std::nullopt;
  };
  for (const std::string_view text : kEogTexts) set(special(text), true);
  // In the vocabularies that call tools by <|call|>, <|end|> separates messages of one answer.
  const bool end_separates =
      (special("<|return|>") && special("<|call|>")) || (special("<|calls|>") && special("<|flush|>"));
  if (end_separates) set(special("<|end|>"), false);
  set(eos_, true);
  set(to_id(vocabulary_.eot_id), true);
  set(to_id(vocabulary_.eom_id), true);
}

std::optional<std::int32_t> Tokenizer::find(std::string_view token_text) const {
  const auto found = index_.find(token_text);
  return found == index_.end() ? std::nullopt : std::optional(found->second);
}

bool Tokenizer::is_control(std::int32_t id) const {
  checked(id);
  const TokenType type = vocabulary_.type(id);
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

bool Tokenizer::is_special(std::int32_t id) const {
  return is_control(id) || vocabulary_.type(id) == TokenType::kUserDefined;
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kMaxText) {
    return Error{.message = "the text is too long",
                 .found = fmt::format("{} bytes", text.size()),
                 .expected = fmt::format("at most {}", kMaxText),
                 .hint = "encode it in parts"};
  }
  NIBBLE_TRY(check_utf8(text, "the text"));
  std::vector<std::int32_t> ids;
  if (options.add_special && add_bos_) ids.push_back(*bos_);
  for (std::size_t done = 0; done < text.size();) {
    const auto match = special_tokens_.find(text, done, options.parse_special);
    const std::size_t end = match ? match->begin : text.size();
    if (end > done) {
      NIBBLE_TRY(encoder_->encode({text.substr(done, end - done), done, options.drop_unencodable}, &ids));
    }
    if (match) ids.push_back(match->id);
    done = match ? match->begin + match->length : text.size();
  }
  if (options.add_special && add_eos_) ids.push_back(*eos_);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, DecodeOptions options) const {
  StreamDecoder decoder(*this, options);
  std::string text;
  for (const std::int32_t id : ids) text += decoder.push(id);
  return text + decoder.flush();
}

std::string StreamDecoder::push(std::int32_t id) {
  std::string_view piece = tokenizer_->token_bytes(id);
  const bool strip = at_text_start_ && tokenizer_->adds_space_prefix() && !tokenizer_->is_special(id);
  if (strip && piece.starts_with(' ')) piece.remove_prefix(1);
  at_text_start_ = tokenizer_->is_special(id);
  if (!options_.render_control && tokenizer_->is_control(id)) piece = {};
  pending_ += piece;
  std::string text;
  std::size_t done = 0;
  while (done < pending_.size()) {
    const Utf8Step step = next_utf8(std::string_view(pending_).substr(done));
    if (step.kind == Utf8Step::Kind::kTruncated) break;
    const bool good = step.kind == Utf8Step::Kind::kCharacter;
    text += good ? std::string_view(pending_).substr(done, step.length) : kReplacement;
    done += step.length;
  }
  pending_.erase(0, done);
  return text;
}

std::string StreamDecoder::flush() {
  std::string text(pending_.empty() ? std::string_view() : kReplacement);
  pending_.clear();
  at_text_start_ = options_.at_text_start;
  return text;
}

}  // namespace nibble::text
