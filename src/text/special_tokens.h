// Finds the tokens that are taken out of a text before anything else looks at it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace nibble::text {

class SpecialTokens {
 public:
  struct Match {
    std::size_t begin, length;
    std::int32_t id;
  };
  // Keeps views of the vocabulary's tokens.
  explicit SpecialTokens(const Vocabulary& vocabulary);

  // The leftmost occurrence at or after `begin`, and of those that begin there the longest. User-defined tokens always
  // count; control and unknown tokens only with `parse_special`, or a user's text could forge the roles of a chat.
  std::optional<Match> find(std::string_view text, std::size_t begin, bool parse_special) const;

 private:
  struct Special {
    std::string_view text;
    std::int32_t id;
    bool only_parsed;  // control or unknown
  };
  std::optional<Match> longest_at(std::string_view text, std::size_t begin, bool parse_special) const;

  std::vector<Special> specials_;  // by text: those that share a prefix stand together, the shortest first
  bool first_byte_[256] = {};
};

}  // namespace nibble::text
