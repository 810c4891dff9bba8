// One conversion, common to both of Python's ways to format values: %-08.3f and {:<08.3f}.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nibble::text::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =, or 0: the type's own
  char sign = '-';    // '-': only of negative numbers, '+', ' '
  bool alternate = false;
  char grouping = '\0';  // ',' or '_'
  int width = 0;
  int precision = -1;
  char type = '\0';
};

std::string format_integer(std::int64_t value, const FormatSpec& spec);
std::string format_float(double value, const FormatSpec& spec);
std::string format_text(std::string text, const FormatSpec& spec);

// A width or precision at text[at], which moves past its digits; throws above what one value may take.
int read_format_number(std::string_view text, std::size_t& at);
// False for the zero that stands for the end of a text.
bool is_one_of(char c, std::string_view set);

}  // namespace nibble::text::jinja
