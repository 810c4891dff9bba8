#include "text/special_tokens.h"

#include <algorithm>

namespace nibble::text {

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) : nodes_(1) {
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const TokenType type = vocabulary.type(id);
    const bool only_parsed = type == TokenType::kControl || type == TokenType::kUnknown;
    if (only_parsed || type == TokenType::kUserDefined) insert(vocabulary.tokens[i], id, only_parsed);
  }
}

void SpecialTokens::insert(std::string_view text, std::int32_t id, bool only_parsed) {
  if (text.empty()) return;
  first_byte_[static_cast<std::uint8_t>(text[0])] = true;
  std::uint32_t at = 0;
  for (const char byte : text) {
    auto& children = nodes_[at].children;
    auto place = std::lower_bound(children.begin(), children.end(), std::pair(byte, std::uint32_t{0}));
    if (place == children.end() || place->first != byte) {
      place = children.insert(place, {byte, static_cast<std::uint32_t>(nodes_.size())});
      at = place->second;
      nodes_.emplace_back();  // invalidates `children`
    } else {
      at = place->second;
    }
  }
  nodes_[at].id = id;
  nodes_[at].only_parsed = only_parsed;
}

const SpecialTokens::Node* SpecialTokens::child(const Node& node, char byte) const {
  const auto place = std::lower_bound(node.children.begin(), node.children.end(), std::pair(byte, std::uint32_t{0}));
  return place != node.children.end() && place->first == byte ? &nodes_[place->second] : nullptr;
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, std::size_t begin,
                                                        bool parse_special) const {
  for (; begin < text.size(); ++begin) {
    if (!first_byte_[static_cast<std::uint8_t>(text[begin])]) continue;
    std::optional<Match> longest;
    const Node* node = &nodes_[0];
    for (std::size_t end = begin; end < text.size(); ++end) {
      node = child(*node, text[end]);
      if (node == nullptr) break;
      if (node->id >= 0 && (parse_special || !node->only_parsed)) longest = Match{begin, end + 1 - begin, node->id};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace nibble::text
