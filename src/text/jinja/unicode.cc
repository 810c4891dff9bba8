#include "text/jinja/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>

#include "base/check.h"
#include "base/utf8.h"

namespace nibble::text::jinja {
namespace {

// A set of code points by general category, asked of PCRE2, which carries Unicode's tables.
class CharacterClass {
 public:
  explicit CharacterClass(const char* pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                              &error, &offset, nullptr));
    NIBBLE_CHECK(code_ != nullptr, "PCRE2 10.40 or later with Unicode is needed");
  }

  bool contains(char32_t c) const {
    std::string text;
    append_utf8(c, &text);
    const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(pcre2_match_data_create(1, nullptr),
                                                                                    &pcre2_match_data_free);
    return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, PCRE2_NO_UTF_CHECK,
                       match.get(), nullptr) >= 0;
  }

 private:
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code_{nullptr, &pcre2_code_free};
};

}  // namespace

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const std::string_view sequence = text.substr(at, next_utf8(text.substr(at)).length);
  at += sequence.size();
  return decode_utf8(sequence);
}

std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

std::size_t byte_offset(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;
    if (index-- == 0) return at;
  }
  return at;
}

std::u32string to_code_points(std::string_view text) {
  std::u32string code_points;
  code_points.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) code_points += next_code_point(text, at);
  return code_points;
}

std::string to_utf8(std::u32string_view code_points) {
  std::string text;
  for (const char32_t c : code_points) append_utf8(c, &text);
  return text;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_printable(char32_t c) {
  static const CharacterClass hidden("[\\p{C}\\p{Z}]");
  return c < 0x7F ? c >= 0x20 : !hidden.contains(c);
}

bool is_word_character(char32_t c) {
  static const CharacterClass word("[\\p{L}\\p{N}_]");
  return word.contains(c);
}

bool is_letter(char32_t c) {
  static const CharacterClass letter("\\p{L}");
  return letter.contains(c);
}

bool is_number(char32_t c) {
  static const CharacterClass number("\\p{N}");
  return number.contains(c);
}

bool is_decimal(char32_t c) {
  static const CharacterClass decimal("\\p{Nd}");
  return decimal.contains(c);
}

bool is_lower_case(char32_t c) {
  static const CharacterClass lower("\\p{Lowercase}");
  return lower.contains(c);
}

bool is_upper_case(char32_t c) {
  static const CharacterClass upper("\\p{Uppercase}");
  return upper.contains(c);
}

bool is_title_case(char32_t c) {
  static const CharacterClass title("\\p{Lt}");
  return title.contains(c);
}

bool is_cased(char32_t c) {
  static const CharacterClass cased("\\p{Cased}");
  return cased.contains(c);
}

bool is_case_ignorable(char32_t c) {
  static const CharacterClass ignorable("\\p{Case_Ignorable}");
  return ignorable.contains(c);
}

std::string_view strip_space(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    std::size_t at = 0;
    if (!is_space(next_code_point(text, at))) break;
    text.remove_prefix(at);
  }
  while (right && !text.empty()) {
    std::size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    std::size_t at = start;
    if (!is_space(next_code_point(text, at))) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

}  // namespace nibble::text::jinja
