#include "text/spm.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace nibble::text {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Whether a space mark follows another character in it: such a token joins the end of one word to the next.
bool joins_words(std::string_view token) {
  for (std::size_t at = token.find(kSpaceMark); at != std::string_view::npos; at = token.find(kSpaceMark, at + 1)) {
    if (at >= kSpaceMark.size() && token.substr(at - kSpaceMark.size(), kSpaceMark.size()) == kSpaceMark) continue;
    if (at > 0) return true;
  }
  return false;
}

}  // namespace

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = hex_digit(token[3]), low = hex_digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

struct SpmEncoder::Scratch {
  struct Symbol {
    std::string_view text;  // empty: taken up by its left neighbour
    std::int32_t previous, next;
  };
  struct Candidate {
    float score;
    std::int32_t position;
    std::size_t length;  // of the joined text: differs once a symbol has changed
    // The best score first; of two places for it, the leftmost.
    bool operator<(const Candidate& other) const {
      return score < other.score || (score == other.score && position > other.position);
    }
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

SpmEncoder::SpmEncoder(const Vocabulary& vocabulary, bool add_space_prefix)
    : scores_(vocabulary.scores), add_space_prefix_(add_space_prefix) {
  byte_ids_.fill(-1);
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const std::string_view token = vocabulary.tokens[i];
    switch (vocabulary.type(id)) {
      case TokenType::kControl:
      case TokenType::kUnknown:
        continue;
      case TokenType::kByte:
        byte_ids_[static_cast<std::size_t>(byte_of_token(token))] = id;
        continue;
      default:
        if (token.empty()) continue;
        ordinary_.emplace(token, id);
        longest_ = std::max(longest_, token.size());
        words_are_apart_ = words_are_apart_ && !joins_words(token);
    }
  }
  if (vocabulary.unk_id) unknown_id_ = static_cast<std::int32_t>(*vocabulary.unk_id);
}

Result<std::unique_ptr<const Encoder>> SpmEncoder::create(const Vocabulary& vocabulary, bool add_space_prefix) {
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.type(static_cast<std::int32_t>(i)) != TokenType::kByte) continue;
    if (byte_of_token(vocabulary.tokens[i]) >= 0) continue;
    return Error{.message = fmt::format("byte token {} names no byte", i),
                 .key = "tokenizer.ggml.tokens",
                 .found = quoted(vocabulary.tokens[i]),
                 .expected = "\"<0x00>\" to \"<0xFF>\""};
  }
  return std::unique_ptr<const Encoder>(new SpmEncoder(vocabulary, add_space_prefix));
}

std::int32_t SpmEncoder::find(std::string_view text) const {
  if (text.size() > longest_) return -1;
  const auto found = ordinary_.find(text);
  return found == ordinary_.end() ? -1 : found->second;
}

Status SpmEncoder::encode(const Fragment& fragment, std::vector<std::int32_t>* ids) const {
  std::string marked;
  if (add_space_prefix_) marked = kSpaceMark;
  for (const char c : fragment.text) c == ' ' ? void(marked += kSpaceMark) : marked.push_back(c);
  Scratch scratch;
  const std::string_view text = marked;
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = text.size();
    if (words_are_apart_) {
      const std::size_t word = text.find_first_not_of(kSpaceMark, begin);  // byte-wise: finds some byte of the word
      end = word == std::string_view::npos ? word : text.find(kSpaceMark, word);
      end = std::min(end, text.size());
    }
    NIBBLE_TRY(encode_word(fragment, text.substr(begin, end - begin), &scratch, ids));
    begin = end;
  }
  return ok_status();
}

Status SpmEncoder::encode_word(const Fragment& fragment, std::string_view word, Scratch* scratch,
                               std::vector<std::int32_t>* ids) const {
  auto& symbols = scratch->symbols;
  symbols.clear();
  for (std::size_t i = 0; i < word.size();) {
    const std::size_t length = next_utf8(word.substr(i)).length;
    const auto position = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({word.substr(i, length), position - 1, position + 1});
    i += length;
  }
  symbols.back().next = -1;
  merge(scratch);
  for (std::int32_t i = 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
    NIBBLE_TRY(emit(fragment, symbols[static_cast<std::size_t>(i)].text, ids));
  }
  return ok_status();
}

void SpmEncoder::merge(Scratch* scratch) const {
  auto& symbols = scratch->symbols;
  auto& heap = scratch->heap;
  const auto symbol = [&](std::int32_t i) -> Scratch::Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  const auto candidate = [&](std::int32_t position) {
    if (position < 0 || symbol(position).next < 0) return false;
    const std::string_view left = symbol(position).text, right = symbol(symbol(position).next).text;
    const std::string_view joined(left.data(), left.size() + right.size());  // neighbours in one buffer
    const std::int32_t id = find(joined);
    if (id >= 0) heap.push_back({scores_[static_cast<std::size_t>(id)], position, joined.size()});
    return id >= 0;
  };
  heap.clear();
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(symbols.size()); ++i) candidate(i);
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbol(best.position);
    if (left.text.empty() || left.next < 0) continue;
    Scratch::Symbol& right = symbol(left.next);
    if (left.text.size() + right.text.size() != best.length) continue;
    left.text = std::string_view(left.text.data(), best.length);
    right.text = {};
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = best.position;
    if (candidate(left.previous)) std::push_heap(heap.begin(), heap.end());
    if (candidate(best.position)) std::push_heap(heap.begin(), heap.end());
  }
}

Status SpmEncoder::emit(const Fragment& fragment, std::string_view symbol, std::vector<std::int32_t>* ids) const {
  if (const std::int32_t id = find(symbol); id >= 0) {
    ids->push_back(id);
    return ok_status();
  }
  const auto id_of = [&](char c) { return byte_ids_[static_cast<std::uint8_t>(c)]; };
  if (std::all_of(symbol.begin(), symbol.end(), [&](char c) { return id_of(c) >= 0; })) {
    for (const char c : symbol) ids->push_back(id_of(c));
  } else if (unknown_id_ >= 0) {
    ids->push_back(unknown_id_);
  } else if (!fragment.drop_unencodable) {
    return Error{.message = "the vocabulary cannot express this text",
                 .found = fmt::format("character {}, for which there is no token", quoted(symbol)),
                 .hint = "remove the character from the text, or ask for such characters to be dropped"};
  }
  return ok_status();
}

}  // namespace nibble::text
