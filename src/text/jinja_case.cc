// Case conversion by code point.
#include "text/jinja_strings.h"
#include "text/jinja_unicode.h"

namespace nibble::text::jinja {
namespace {

char upper_ascii(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

char lower_ascii(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

std::string to_upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = upper_ascii(c);
  return result;
}

std::string to_lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = lower_ascii(c);
  return result;
}

std::string capitalize(std::string_view text) {
  std::string result = to_lower(text);
  if (!result.empty()) result[0] = upper_ascii(result[0]);
  return result;
}

std::string title_case(std::string_view text) {
  std::string result(text);
  bool inside = false;
  for (char& c : result) {
    c = inside ? lower_ascii(c) : upper_ascii(c);
    inside = is_letter(c);
  }
  return result;
}

}  // namespace nibble::text::jinja
