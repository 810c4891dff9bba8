#include "text/special_tokens.h"

#include <algorithm>

namespace nibble::text {

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) {
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const std::string_view text = vocabulary.tokens[i];
    const TokenType type = vocabulary.type(id);
    const bool only_parsed = type == TokenType::kControl || type == TokenType::kUnknown;
    if (text.empty() || !(only_parsed || type == TokenType::kUserDefined)) continue;
    specials_.push_back({text, id, only_parsed});
    first_byte_[static_cast<std::uint8_t>(text[0])] = true;
  }
  std::sort(specials_.begin(), specials_.end(), [](auto& a, auto& b) { return a.text < b.text; });
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, std::size_t begin,
                                                        bool parse_special) const {
  for (; begin < text.size(); ++begin) {
    if (!first_byte_[static_cast<std::uint8_t>(text[begin])]) continue;
    if (const auto match = longest_at(text, begin, parse_special)) return match;
  }
  return std::nullopt;
}

// Byte by byte, the range of tokens that begin with text[begin...] shrinks.
std::optional<SpecialTokens::Match> SpecialTokens::longest_at(std::string_view text, std::size_t begin,
                                                              bool parse_special) const {
  std::optional<Match> longest;
  auto low = specials_.begin(), high = specials_.end();
  for (std::size_t length = 0; begin + length < text.size() && low != high;) {
    const auto byte_of = [length](const Special& s) {  // -1 for a token that ends here
      return length < s.text.size() ? static_cast<std::uint8_t>(s.text[length]) : -1;
    };
    const int byte = static_cast<std::uint8_t>(text[begin + length]);
    low = std::partition_point(low, high, [&](const Special& s) { return byte_of(s) < byte; });
    high = std::partition_point(low, high, [&](const Special& s) { return byte_of(s) == byte; });
    ++length;
    const bool complete = low != high && low->text.size() == length;
    if (complete && (parse_special || !low->only_parsed)) longest = Match{begin, length, low->id};
  }
  return longest;
}

}  // namespace nibble::text
