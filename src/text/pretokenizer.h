// The first step of byte-level BPE: a text falls into pieces (words, numbers, runs of space) that no merge ever joins.
// Each family of models has its rule, named by tokenizer.ggml.pre; a rule is one or more regular expressions of PCRE2.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble::text {

struct PretokenizerRule;

class Pretokenizer {
 public:
  // `name` is the value of tokenizer.ggml.pre. An empty name (the key is absent) is the rule "default".
  static Result<Pretokenizer> create(std::string_view name);
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  // Appends the pieces of `text`, which is valid UTF-8; joined, they are `text` again.
  Status split(std::string_view text, std::vector<std::string_view>* pieces) const;

  // A piece that is a token as a whole is that token, whatever the merges say.
  bool ignore_merges() const;
  // What add_bos is in files that lack the key.
  bool default_add_bos() const;

 private:
  class Pattern;
  explicit Pretokenizer(const PretokenizerRule& rule);
  const PretokenizerRule* rule_;
  std::vector<Pattern> patterns_;  // each splits what the one before left
};

}  // namespace nibble::text
