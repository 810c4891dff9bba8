// Filters that make numbers, and the defaults of missing values.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "text/jinja/filters.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace nibble::text::jinja {
namespace {

// Digits as Python's int() and float() read them: blanks around, single underscores between digits.
std::optional<std::string> clean_number(std::string_view text) {
  std::string result;
  text = strip_space(text, true, true);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() && std::isalnum(static_cast<unsigned char>(text[i - 1])) &&
                         std::isalnum(static_cast<unsigned char>(text[i + 1]));
    if (!between) return std::nullopt;
  }
  return result;
}

std::optional<std::int64_t> parse_integer(std::string_view text, int base) {
  const std::optional<std::string> clean = clean_number(text);
  if (!clean) return std::nullopt;
  std::string digits = *clean;
  const bool has_sign = digits.starts_with('+') || digits.starts_with('-');
  const bool negative = digits.starts_with('-');
  if (has_sign) digits.erase(0, 1);
  if (digits.size() > 2 && digits[0] == '0') {
    const char mark = static_cast<char>(std::tolower(static_cast<unsigned char>(digits[1])));
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      digits.erase(0, 2);
      base = marked;
    }
  }
  if (base == 0) base = 10;
  if (digits.empty() || !std::isalnum(static_cast<unsigned char>(digits[0]))) return std::nullopt;
  if (negative) digits.insert(0, "-");
  std::int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [last, error] = std::from_chars(digits.data(), end, value, base);
  if (error == std::errc::result_out_of_range && last == end) fail("integer " + digits + " does not fit 64 bits");
  if (error != std::errc() || last != end) return std::nullopt;
  return value;
}

std::optional<double> parse_float(std::string_view text) {
  const std::optional<std::string> clean = clean_number(text);
  if (!clean || clean->empty()) return std::nullopt;
  std::string_view digits = *clean;
  if (digits[0] == '+') digits.remove_prefix(1);
  if (digits.empty() || digits[0] == '+') return std::nullopt;
  double value = 0;
  const char* end = digits.data() + digits.size();
  const auto [last, error] = std::from_chars(digits.data(), end, value);
  if (last != end) return std::nullopt;
  if (error == std::errc::result_out_of_range) {  // too large or too small: Python gives inf or 0
    const bool small = digits.find("e-") != std::string_view::npos || digits.find("E-") != std::string_view::npos;
    value = std::copysign(small ? 0.0 : INFINITY, digits[0] == '-' ? -1.0 : 1.0);
  } else if (error != std::errc() || digits.find('(') != std::string_view::npos) {
    return std::nullopt;
  }
  return value;
}

Value truncate_float(double value, const char* overflow) {
  if (!std::isfinite(value) || std::fabs(value) >= 9.2e18) fail(overflow);
  return Value::integer(static_cast<std::int64_t>(value));
}

Value filter_int(Runtime&, const Value& input, const Args& args) {
  const Bound bound = bind("int", args, {"default", "base"});
  Value fallback = bound[0].value_or(Value::integer(0));
  const std::int64_t base = bound[1] ? to_integer(*bound[1], "base") : 10;
  if (base != 0 && (base < 2 || base > 36)) fail("int() base must be >= 2 and <= 36, or 0");
  if (input.is(Kind::kUndefined)) fail_undefined(input);
  if (input.is_integral()) return Value::integer(input.integer_value());
  if (input.is(Kind::kFloat)) {
    if (std::isnan(input.real_value())) return fallback;
    return truncate_float(input.real_value(), "a float is too large for a 64-bit integer");
  }
  if (!input.is(Kind::kString)) return fallback;
  if (const auto value = parse_integer(input.text(), static_cast<int>(base))) return Value::integer(*value);
  const std::optional<double> value = parse_float(input.text());
  if (!value || !std::isfinite(*value)) return fallback;
  return truncate_float(*value, "a float is too large for a 64-bit integer");
}

Value filter_float(Runtime&, const Value& input, const Args& args) {
  const Bound bound = bind("float", args, {"default"});
  if (input.is(Kind::kUndefined)) fail_undefined(input);
  if (input.is_number()) return Value::real(input.real_value());
  const std::optional<double> value = input.is(Kind::kString) ? parse_float(input.text()) : std::nullopt;
  return value ? Value::real(*value) : bound[0].value_or(Value::real(0.0));
}

Value filter_abs(Runtime& runtime, const Value& input, const Args& args) {
  bind("abs", args, {});
  if (input.is(Kind::kUndefined)) fail_undefined(input);
  if (!input.is_number()) fail("bad operand type for abs(): '" + type_name(input) + "'");
  if (input.is(Kind::kFloat)) return Value::real(std::fabs(input.real_value()));
  return input.integer_value() < 0 ? unary(runtime, '-', input) : unary(runtime, '+', input);
}

// Python's round(): the decimal nearest to the exact value of the double, ties to even.
double round_common(double value, std::int64_t precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision < 0) fail("round: a negative precision is not supported");
  const std::string text = fmt::format("{:.{}f}", value, static_cast<int>(precision));
  double result = 0;
  std::from_chars(text.data(), text.data() + text.size(), result);
  return result;
}

Value filter_round(Runtime&, const Value& input, const Args& args) {
  const Bound bound = bind("round", args, {"precision", "method"});
  const std::int64_t precision = bound[0] ? to_integer(*bound[0], "precision") : 0;
  const std::string method = bound[1] && bound[1]->is(Kind::kString) ? bound[1]->text() : bound[1] ? "" : "common";
  if (method != "common" && method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  if (input.is(Kind::kUndefined)) fail_undefined(input);
  if (!input.is_number()) fail("round: a number is needed, not " + type_name(input));
  if (method == "common") {
    if (input.is_integral() && precision >= 0) return Value::integer(input.integer_value());
    return Value::real(round_common(input.real_value(), precision));
  }
  if (precision < -300 || precision > 300) fail("round: precision is out of range");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.real_value() * scale;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value filter_default(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound = bind("default", args, {"default_value", "boolean"});
  if (!input.is(Kind::kUndefined) && !(flag(bound[1]) && !truth(input))) return input;
  return bound[0] ? *bound[0] : runtime.string("");
}

Value filter_length(Runtime& runtime, const Value& input, const Args& args) {
  bind("length", args, {});
  if (input.is(Kind::kString)) runtime.charge_bytes(input.text().size());
  const std::optional<std::size_t> size = length(input);
  if (!size) fail("object of type '" + type_name(input) + "' has no len()");
  return Value::integer(static_cast<std::int64_t>(*size));
}

Value filter_wordcount(Runtime& runtime, const Value& input, const Args& args) {
  bind("wordcount", args, {});
  const std::string text = to_str(runtime, input);
  runtime.charge_bytes(text.size() * 4);
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const bool is_word = is_word_character(next_code_point(text, at));
    words += is_word && !inside ? 1 : 0;
    inside = is_word;
  }
  return Value::integer(words);
}

constexpr NamedFilter kFilters[] = {
    {"int", filter_int},       {"float", filter_float},     {"abs", filter_abs},
    {"round", filter_round},   {"default", filter_default}, {"d", filter_default},
    {"length", filter_length}, {"count", filter_length},    {"wordcount", filter_wordcount},
};

}  // namespace

std::span<const NamedFilter> number_filters() {
  return kFilters;
}

}  // namespace nibble::text::jinja
