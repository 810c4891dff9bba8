#include "text/jinja/format_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "text/jinja/error.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace nibble::text::jinja {
namespace {

constexpr int kMaxWidth = 100'000;  // of one formatted value

std::string pad(const std::string& text, const FormatSpec& spec, char default_align) {
  const auto missing = static_cast<std::int64_t>(spec.width) - static_cast<std::int64_t>(count_code_points(text));
  if (missing <= 0) return text;
  const char align = spec.align == '\0' ? default_align : spec.align;
  const std::int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string result;
  std::size_t sign = 0;
  if (align == '=') {  // between the sign (or 0x) and the digits
    sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
    if (spec.alternate && text.size() > sign + 1 && text[sign] == '0' &&
        std::isalpha(static_cast<unsigned char>(text[sign + 1])))
      sign += 2;
  }
  result += text.substr(0, sign);
  for (std::int64_t i = 0; i < left; ++i) result += spec.fill;
  result += text.substr(sign);
  for (std::int64_t i = left; i < missing; ++i) result += spec.fill;
  return result;
}

std::string group_digits(const std::string& digits, char separator) {
  std::size_t whole = 0;
  while (whole < digits.size() && std::isdigit(static_cast<unsigned char>(digits[whole]))) ++whole;
  std::string result;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) result += separator;
    result += digits[i];
  }
  return result + digits.substr(whole);
}

std::string finish_number(bool negative, std::string digits, const FormatSpec& spec) {
  if (spec.grouping != '\0') digits = group_digits(digits, spec.grouping);
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  return pad(sign + digits, spec, '>');
}

}  // namespace

std::string format_integer(std::int64_t value, const FormatSpec& spec) {
  const bool negative = value < 0;
  const std::uint64_t size = negative ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  std::string digits;
  switch (spec.type) {
    case 'x':
      digits = fmt::format("{}{:x}", spec.alternate ? "0x" : "", size);
      break;
    case 'X':
      digits = fmt::format("{}{:X}", spec.alternate ? "0X" : "", size);
      break;
    case 'o':
      digits = fmt::format("{}{:o}", spec.alternate ? "0o" : "", size);
      break;
    case 'b':
      digits = fmt::format("{}{:b}", spec.alternate ? "0b" : "", size);
      break;
    default:
      digits = std::to_string(size);
  }
  return finish_number(negative, digits, spec);
}

std::string format_float(double value, const FormatSpec& spec) {
  const bool percent = spec.type == '%';
  const double size = std::fabs(percent ? value * 100 : value);
  std::string digits;
  if (spec.type == '\0' && spec.precision < 0) {
    digits = float_repr(size);
  } else if (spec.type == '\0') {
    digits = fmt::format(fmt::runtime("{:.{}g}"), size, std::max(spec.precision, 1));
    if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
  } else {
    const char type = percent ? 'f' : spec.type;
    const std::string pattern = std::string(spec.alternate ? "{:#.{}" : "{:.{}") + type + "}";
    digits = fmt::format(fmt::runtime(pattern), size, spec.precision < 0 ? 6 : spec.precision);
  }
  if (percent) digits += '%';
  return finish_number(std::signbit(value) && !std::isnan(value), digits, spec);
}

std::string format_text(std::string text, const FormatSpec& spec) {
  if (spec.precision >= 0) text.resize(byte_offset(text, static_cast<std::size_t>(spec.precision)));
  return pad(text, spec, '<');
}

int read_format_number(std::string_view text, std::size_t& at) {
  int value = 0;
  while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at]))) {
    value = value * 10 + (text[at++] - '0');
    if (value > kMaxWidth) fail("a width or precision in a format is too large");
  }
  return value;
}

bool is_one_of(char c, std::string_view set) {
  return c != '\0' && set.find(c) != std::string_view::npos;
}

}  // namespace nibble::text::jinja
