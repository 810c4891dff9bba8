#include <cctype>

#include "base/utf8.h"
#include "text/jinja/error.h"
#include "text/jinja/token.h"
#include "text/jinja/unicode.h"

namespace nibble::text::jinja {
namespace {

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                           "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool is_digit(char c, int base = 10) {
  if (base == 16) return std::isxdigit(static_cast<unsigned char>(c)) != 0;
  return c >= '0' && c < '0' + base;
}

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

// \r\n and \r become \n, and one newline at the end goes (keep_trailing_newline is off).
std::string normalize_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_text();
    tokens_.push_back({TokenKind::kEnd, "", line_});
    return std::move(tokens_);
  }

 private:
  void lex_text();
  void lex_comment();
  bool lex_raw();
  void lex_tag(TokenKind open, TokenKind close, char close_char);
  bool lex_tag_end(TokenKind close, char close_char);
  void lex_item();
  void lex_number();
  void lex_string();
  void lex_operator();
  void append_escape(std::string& text, std::size_t& i, std::size_t end);

  bool starts_with(std::string_view prefix, std::size_t at) const {
    return std::string_view(source_).substr(at).starts_with(prefix);
  }
  char peek(std::size_t offset = 0) const { return at_ + offset < source_.size() ? source_[at_ + offset] : '\0'; }
  void advance_to(std::size_t to) {
    for (; at_ < to; ++at_) line_ += source_[at_] == '\n';
  }
  void skip_space();
  void skip_one_newline() {
    if (peek() == '\n') advance_to(at_ + 1);
  }
  std::size_t find_tag(std::size_t from) const;
  std::string_view trim_before_tag(std::string_view text, char sign, bool expression) const;
  void push_text(std::string_view text, int line) {
    if (!text.empty()) tokens_.push_back({TokenKind::kText, std::string(text), line});
  }

  const std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the text before at_ ended with a newline, or there was none
  std::string brackets_;       // open brackets of the current tag
  std::vector<Token> tokens_;
};

void Lexer::skip_space() {
  while (at_ < source_.size()) {
    std::size_t next = at_;
    if (!is_space(next_code_point(source_, next))) return;
    advance_to(next);
  }
}

std::size_t Lexer::find_tag(std::size_t from) const {
  for (std::size_t i = source_.find('{', from); i != std::string::npos; i = source_.find('{', i + 1)) {
    const char next = i + 1 < source_.size() ? source_[i + 1] : '\0';
    if (next == '%' || next == '{' || next == '#') return i;
  }
  return source_.size();
}

// '-' strips all whitespace before the tag; lstrip_blocks strips the blanks between the line's start and a {% or {#.
std::string_view Lexer::trim_before_tag(std::string_view text, char sign, bool expression) const {
  if (sign == '-') return strip_space(text, false, true);
  if (sign == '+' || expression) return text;
  const std::size_t newline = text.rfind('\n');
  const std::size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
  if (line_start == 0 && !line_starting_) return text;
  const bool blank = strip_space(text.substr(line_start), true, false).empty();
  return blank ? text.substr(0, line_start) : text;
}

void Lexer::lex_text() {
  const std::size_t tag = find_tag(at_);
  const int line = line_;
  const std::string_view text = std::string_view(source_).substr(at_, tag - at_);
  if (tag == source_.size()) {
    advance_to(tag);
    return push_text(text, line);
  }
  const char kind = source_[tag + 1];
  const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
  push_text(trim_before_tag(text, sign, kind == '{'), line);
  advance_to(tag);
  if (kind == '%' && lex_raw()) return;
  advance_to(tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
  if (kind == '#') return lex_comment();
  if (kind == '{') return lex_tag(TokenKind::kExpressionOpen, TokenKind::kExpressionClose, '}');
  lex_tag(TokenKind::kStatementOpen, TokenKind::kStatementClose, '%');
}

void Lexer::lex_comment() {
  const int line = line_;
  const std::size_t end = source_.find("#}", at_);
  if (end == std::string::npos) fail("comment without its closing '#}'", line);
  const char sign = end > at_ ? source_[end - 1] : '\0';
  advance_to(end + 2);
  line_starting_ = false;
  if (sign == '-') {
    skip_space();
  } else if (sign != '+' && peek() == '\n') {
    skip_one_newline();
  }
  line_starting_ = source_[at_ - 1] == '\n';
}

// {% raw %} ... {% endraw %}: at_ stands on the first brace. False, and nothing read, when this is another tag.
bool Lexer::lex_raw() {
  const std::size_t start = at_;
  const int start_line = line_;
  advance_to(at_ + 2);
  if (peek() == '-' || peek() == '+') advance_to(at_ + 1);
  skip_space();
  const bool is_raw = starts_with("raw", at_);
  if (is_raw) advance_to(at_ + 3);
  skip_space();
  if (!is_raw || !(starts_with("%}", at_) || starts_with("-%}", at_))) {
    at_ = start;
    line_ = start_line;
    return false;
  }
  const bool strip_after = peek() == '-';
  advance_to(at_ + (strip_after ? 3 : 2));
  if (strip_after) skip_space();
  line_starting_ = source_[at_ - 1] == '\n';
  const std::size_t body = at_;
  const int body_line = line_;
  for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 2)) {
    advance_to(tag + 2);
    const char sign = peek() == '-' || peek() == '+' ? peek() : '\0';
    if (sign != '\0') advance_to(at_ + 1);
    skip_space();
    if (!starts_with("endraw", at_)) continue;
    advance_to(at_ + 6);
    skip_space();
    if (peek() == '-' || peek() == '+' || peek() == '%') {
      const char end_sign = peek();
      if (end_sign != '%') advance_to(at_ + 1);
      if (!starts_with("%}", at_)) continue;
      advance_to(at_ + 2);
      push_text(trim_before_tag(std::string_view(source_).substr(body, tag - body), sign, false), body_line);
      if (end_sign == '-') skip_space();
      if (end_sign == '%') skip_one_newline();
      line_starting_ = source_[at_ - 1] == '\n';
      return true;
    }
  }
  fail("{% raw %} without {% endraw %}", start_line);
}

// Everything between the opening mark (already read) and its end.
void Lexer::lex_tag(TokenKind open, TokenKind close, char close_char) {
  const int line = line_;
  tokens_.push_back({open, "", line});
  brackets_.clear();
  while (true) {
    skip_space();
    if (at_ >= source_.size()) {
      // jinja2 lets the parser find this; the message is the better one with the line of the opening mark.
      fail(close_char == '%' ? "'{%' without its closing '%}'" : "'{{' without its closing '}}'", line);
    }
    if (brackets_.empty() && lex_tag_end(close, close_char)) return;
    lex_item();
  }
}

bool Lexer::lex_tag_end(TokenKind close, char close_char) {
  const bool statement = close_char == '%';
  const bool signed_end = peek() == '-' || (statement && peek() == '+');
  const char sign = signed_end ? peek() : '\0';
  const std::size_t mark = at_ + (signed_end ? 1 : 0);
  if (!starts_with(statement ? "%}" : "}}", mark)) return false;
  tokens_.push_back({close, "", line_});
  advance_to(mark + 2);
  if (sign == '-') skip_space();
  if (statement && sign == '\0') skip_one_newline();
  line_starting_ = source_[at_ - 1] == '\n';
  return true;
}

void Lexer::lex_item() {
  const char c = peek();
  if (is_digit(c)) return lex_number();
  if (c == '\'' || c == '"') return lex_string();
  if (!is_name_char(c)) return lex_operator();
  std::size_t end = at_;
  while (end < source_.size() && is_name_char(source_[end])) ++end;
  tokens_.push_back({TokenKind::kName, source_.substr(at_, end - at_), line_});
  advance_to(end);
}

void Lexer::lex_number() {
  // Runs of digits may hold single underscores between digits.
  auto digits = [this](std::size_t i, int base) {
    while (i < source_.size() && (is_digit(source_[i], base) ||
                                  (source_[i] == '_' && i + 1 < source_.size() && is_digit(source_[i + 1], base)))) {
      ++i;
    }
    return i;
  };
  std::size_t end = digits(at_, 10);
  bool real = false;
  const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
  if (!after_dot && end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
    end = digits(end + 1, 10);
    real = true;
  }
  if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
    std::size_t exponent = end + 1;
    if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
    if (exponent < source_.size() && is_digit(source_[exponent])) {
      end = digits(exponent, 10);
      real = true;
    }
  }
  if (!real && peek() == '0' && end - at_ == 1) {
    const char mark = static_cast<char>(std::tolower(static_cast<unsigned char>(peek(1))));
    const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (base != 0 && (is_digit(peek(2), base) || (peek(2) == '_' && is_digit(peek(3), base)))) {
      end = digits(at_ + 2, base);
    }
  } else if (!real && peek() == '0') {
    end = std::min(end, source_.find_first_not_of("0_", at_));  // "007" is a zero and a seven: an error of the parser
  }
  std::string text;
  for (std::size_t i = at_; i < end; ++i) {
    if (source_[i] != '_') text += source_[i];
  }
  tokens_.push_back({real ? TokenKind::kFloat : TokenKind::kInteger, text, line_});
  advance_to(end);
}

void Lexer::lex_string() {
  const char quote = peek();
  const int line = line_;
  std::size_t end = at_ + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) fail("string without its closing quote", line);
  std::string text;
  for (std::size_t i = at_ + 1; i < end;) {
    if (source_[i] == '\\') {
      append_escape(text, i, end);
    } else {
      text += source_[i++];
    }
  }
  tokens_.push_back({TokenKind::kString, std::move(text), line});
  advance_to(end + 1);
}

// The escapes of a Python string literal; source_[i] is the backslash, `end` the closing quote.
void Lexer::append_escape(std::string& text, std::size_t& i, std::size_t end) {
  static constexpr std::string_view kNames = "\\'\"abfnrtv\n";
  static constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
  const char c = source_[i + 1];
  if (const std::size_t known = kNames.find(c); known != std::string_view::npos) {
    if (known < kValues.size()) text += kValues[known];  // a backslash before a newline joins the lines
    i += 2;
    return;
  }
  const int hex_length = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  const bool octal = is_digit(c, 8);
  if (hex_length == 0 && !octal) {
    if (c == 'N') fail("string escape \\N{...} is not supported", line_);
    text += source_[i++];  // an unknown escape stands for itself
    return;
  }
  const int base = octal ? 8 : 16;
  std::size_t from = octal ? i + 1 : i + 2;
  const std::size_t limit = std::min(end, from + (octal ? 3 : static_cast<std::size_t>(hex_length)));
  char32_t value = 0;
  std::size_t digit = from;
  for (; digit < limit && is_digit(source_[digit], base); ++digit) {
    const char d = static_cast<char>(std::tolower(static_cast<unsigned char>(source_[digit])));
    value = value * static_cast<char32_t>(base) + static_cast<char32_t>(d >= 'a' ? d - 'a' + 10 : d - '0');
  }
  if (!octal && digit != from + static_cast<std::size_t>(hex_length))
    fail("truncated \\" + std::string(1, c) + " escape", line_);
  if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
    fail("string escape names no Unicode character", line_);
  }
  append_utf8(value, &text);
  i = digit;
}

void Lexer::lex_operator() {
  for (const std::string_view op : kOperators) {
    if (!starts_with(op, at_)) continue;
    if (op == "(" || op == "[" || op == "{") brackets_ += op == "(" ? ')' : op == "[" ? ']' : '}';
    if (op == ")" || op == "]" || op == "}") {
      if (brackets_.empty()) fail("unexpected '" + std::string(op) + "'", line_);
      if (brackets_.back() != op[0]) {
        fail("unexpected '" + std::string(op) + "', expected '" + brackets_.back() + "'", line_);
      }
      brackets_.pop_back();
    }
    tokens_.push_back({TokenKind::kOperator, std::string(op), line_});
    return advance_to(at_ + op.size());
  }
  fail("unexpected character '" + source_.substr(at_, 1) + "'", line_);
}

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace nibble::text::jinja
