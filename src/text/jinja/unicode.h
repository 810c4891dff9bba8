// The few questions about text that Python's str answers by code point, over UTF-8 that is known to be valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nibble::text::jinja {

// Decodes the code point at byte `at` (at < text.size()) and moves `at` past it.
char32_t next_code_point(std::string_view text, std::size_t& at);

inline bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}
std::size_t count_code_points(std::string_view text);
// Byte offset of code point `index`, or text.size() when there are not that many.
std::size_t byte_offset(std::string_view text, std::size_t index);
std::u32string to_code_points(std::string_view text);
std::string to_utf8(std::u32string_view code_points);

// Python's str.isspace for one code point, which is also what its regular expressions call \s.
bool is_space(char32_t code_point);
// Python's line boundaries of str.splitlines, without the pair \r\n.
bool is_line_break(char32_t code_point);
// Python's str.isprintable for one code point: what repr() shows as it is.
bool is_printable(char32_t code_point);
// What Python's regular expressions call \w: letters, numbers and the underscore.
bool is_word_character(char32_t code_point);

// General categories and derived properties of Unicode.
bool is_letter(char32_t code_point);
bool is_number(char32_t code_point);   // category N
bool is_decimal(char32_t code_point);  // category Nd
bool is_lower_case(char32_t code_point);
bool is_upper_case(char32_t code_point);
bool is_title_case(char32_t code_point);
bool is_cased(char32_t code_point);
bool is_case_ignorable(char32_t code_point);

std::string_view strip_space(std::string_view text, bool left, bool right);

}  // namespace nibble::text::jinja
