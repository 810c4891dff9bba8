// Finds the tokens that are taken out of a text before anything else looks at it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "text/vocabulary.h"

namespace nibble::text {

class SpecialTokens {
 public:
  struct Match {
    std::size_t begin, length;
    std::int32_t id;
  };
  explicit SpecialTokens(const Vocabulary& vocabulary);

  // The leftmost occurrence at or after `begin`, and of those that begin there the longest. User-defined tokens always
  // count; control and unknown tokens only with `parse_special`, or a user's text could forge the roles of a chat.
  std::optional<Match> find(std::string_view text, std::size_t begin, bool parse_special) const;

 private:
  struct Node {
    std::vector<std::pair<char, std::uint32_t>> children;  // by byte, ascending
    std::int32_t id = -1;                                  // of the token that ends here
    bool only_parsed = false;                              // control or unknown
  };
  void insert(std::string_view text, std::int32_t id, bool only_parsed);
  const Node* child(const Node& node, char byte) const;
  std::vector<Node> nodes_;  // a trie; nodes_[0] is the root
  bool first_byte_[256] = {};
};

}  // namespace nibble::text
