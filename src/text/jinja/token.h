// The tokens of a template: text between tags, and what stands inside {% %} and {{ }}.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nibble::text::jinja {

enum class TokenKind : std::uint8_t {
  kText,            // template text outside of tags, whitespace control already applied
  kExpressionOpen,  // {{
  kExpressionClose,
  kStatementOpen,  // {%
  kStatementClose,
  kName,
  kString,  // value: the decoded text
  kInteger,
  kFloat,
  kOperator,  // value: the operator itself, e.g. "//"
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string value = {};
  int line = 0;

  bool is(TokenKind k, std::string_view v) const { return kind == k && value == v; }
};

// Splits a template into tokens as jinja2 does under trim_blocks and lstrip_blocks, without comments and raw marks.
// Throws TemplateError. `source` is valid UTF-8.
std::vector<Token> tokenize(std::string_view source);

}  // namespace nibble::text::jinja
