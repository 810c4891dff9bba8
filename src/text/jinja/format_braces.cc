// 'text'.format(values).
#include <algorithm>
#include <cctype>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/ops.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace nibble::text::jinja {
namespace {

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, std::string_view pattern, bool markup, const Args& args)
      : runtime_(runtime), pattern_(pattern), markup_(markup), args_(args), out_(runtime) {}
  std::string run();

 private:
  void replace_field(std::string_view field);
  Value find_value(std::string_view name);
  Value first_value(std::string_view name);
  std::string format_value(const Value& value, std::string_view text);
  FormatSpec read_spec(std::string_view text);

  Runtime& runtime_;
  std::string_view pattern_;
  const bool markup_;  // see PercentFormatter
  const Args& args_;
  TextBuilder out_;
  std::size_t next_ = 0;
  bool automatic_ = false, manual_ = false;
};

std::string BraceFormatter::run() {
  for (std::size_t at = 0; at < pattern_.size();) {
    const std::size_t brace = std::min(pattern_.find_first_of("{}", at), pattern_.size());
    out_ << pattern_.substr(at, brace - at);
    if (brace == pattern_.size()) break;
    const char c = pattern_[brace];
    if (brace + 1 < pattern_.size() && pattern_[brace + 1] == c) {
      out_ << c;
      at = brace + 2;
      continue;
    }
    if (c == '}') fail("single '}' encountered in format string");
    const std::size_t end = pattern_.find_first_of("{}", brace + 1);
    if (end == std::string_view::npos) fail("expected '}' before end of string");
    if (pattern_[end] == '{') fail("a field inside of a format field is not supported");
    replace_field(pattern_.substr(brace + 1, end - brace - 1));
    at = end + 1;
  }
  return out_.take();
}

void BraceFormatter::replace_field(std::string_view field) {
  const std::size_t colon = field.find(':');
  const std::string_view spec = colon == std::string_view::npos ? std::string_view() : field.substr(colon + 1);
  std::string_view name = field.substr(0, colon);
  char conversion = '\0';
  if (const std::size_t mark = name.find('!'); mark != std::string_view::npos) {
    if (mark + 2 != name.size() || !is_one_of(name[mark + 1], "rs")) fail("unsupported conversion in a format field");
    conversion = name[mark + 1];
    name = name.substr(0, mark);
  }
  Value value = find_value(name);
  if (conversion == 'r') value = runtime_.string(to_repr(runtime_, value));
  if (conversion == 's') value = runtime_.string(to_str(runtime_, value));
  if (markup_ && value.is_markup() && !spec.empty()) fail("a format specification for safe text is not supported");
  const std::string text = format_value(value, spec);
  out_ << (markup_ && !value.is_markup() ? escape_markup(runtime_, text) : text);
}

Value BraceFormatter::first_value(std::string_view name) {
  const bool is_index =
      !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!name.empty() && !is_index) {
    const Value* found = args_.find(name);
    if (found == nullptr) fail("format names the argument '" + std::string(name) + "', which is not there");
    return *found;
  }
  (name.empty() ? automatic_ : manual_) = true;
  if (automatic_ && manual_) fail("cannot switch between automatic and manual field numbering");
  std::size_t at = 0;
  const std::size_t index = name.empty() ? next_++ : static_cast<std::size_t>(read_format_number(name, at));
  if (index >= args_.positional.size())
    fail("replacement index " + std::to_string(index) + " out of range for positional args");
  return args_.positional[index];
}

// name, name.attribute, name[item], and so on.
Value BraceFormatter::find_value(std::string_view name) {
  std::size_t at = std::min(name.find_first_of(".["), name.size());
  Value value = first_value(name.substr(0, at));
  while (at < name.size()) {
    const bool is_attribute = name[at] == '.';
    const std::size_t end = is_attribute ? std::min(name.find_first_of(".[", at + 1), name.size()) : name.find(']', at);
    if (end == std::string_view::npos) fail("missing ']' in format string");
    const std::string_view part = name.substr(at + 1, end - at - 1);
    if (part.empty()) fail("empty attribute in format string");
    std::size_t digits = 0;
    const bool is_index = !is_attribute && std::isdigit(static_cast<unsigned char>(part[0]));
    const Value key = is_index ? Value::integer(read_format_number(part, digits)) : runtime_.string(std::string(part));
    value = is_attribute ? get_attribute(runtime_, value, part) : get_item(runtime_, value, key);
    at = is_attribute ? end : end + 1;
    if (at < name.size() && !is_one_of(name[at], ".["))
      fail("only '.' or '[' may follow ']' in format field specifier");
  }
  return value;
}

FormatSpec BraceFormatter::read_spec(std::string_view text) {
  FormatSpec spec;
  std::size_t at = 0;
  const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  std::size_t after_fill = 0;
  if (!text.empty()) next_code_point(text, after_fill);
  if (after_fill < text.size() && is_one_of(text[after_fill], "<>^=")) {
    spec.fill = std::string(text.substr(0, after_fill));
    spec.align = text[after_fill];
    at = after_fill + 1;
  } else if (is_one_of(peek(), "<>^=")) {
    spec.align = text[at++];
  }
  if (is_one_of(peek(), "+- ")) spec.sign = text[at++];
  if (peek() == '#') {
    spec.alternate = true;
    ++at;
  }
  if (peek() == '0') {
    ++at;
    if (spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  spec.width = read_format_number(text, at);
  if (is_one_of(peek(), ",_")) spec.grouping = text[at++];
  if (peek() == '.') {
    ++at;
    if (!std::isdigit(static_cast<unsigned char>(peek()))) fail("format specifier missing precision");
    spec.precision = read_format_number(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) fail("invalid format specifier '" + std::string(text) + "'");
  if (spec.grouping != '\0' && spec.align == '=') fail("zero padding of grouped digits is not supported");
  return spec;
}

std::string BraceFormatter::format_value(const Value& value, std::string_view text) {
  if (text.empty()) return to_str(runtime_, value);
  FormatSpec spec = read_spec(text);
  const auto fail_type = [&]() -> void {
    fail("unknown format code '" + std::string(1, spec.type) + "' for object of type '" + type_name(value) + "'");
  };
  if (value.is(Kind::kString)) {
    if (!is_one_of(spec.type, "s") && spec.type != '\0') fail_type();
    if (spec.align == '=' && text[0] == '0') spec.align = '<';
    if (spec.align == '=' || spec.sign != '-' || spec.grouping != '\0' || spec.alternate)
      fail("this format is not allowed for a string");
    return format_text(value.text(), spec);
  }
  if (value.is_integral() && (spec.type == '\0' || is_one_of(spec.type, "dxXob"))) {
    if (spec.precision >= 0) fail("precision not allowed in integer format specifier");
    if (spec.grouping != '\0' && is_one_of(spec.type, "xXob")) fail("grouping of hexadecimal digits is not supported");
    return format_integer(value.integer_value(), spec);
  }
  if (!value.is_number()) fail("unsupported format string passed to " + type_name(value) + ".__format__");
  if (spec.type != '\0' && !is_one_of(spec.type, "eEfFgG%")) fail_type();
  if (is_one_of(spec.type, "gG") && spec.precision == 0) spec.precision = 1;
  return format_float(value.real_value(), spec);
}

}  // namespace

Value format_braces(Runtime& runtime, const Value& pattern, const Args& args) {
  return runtime.string(BraceFormatter(runtime, pattern.text(), pattern.is_markup(), args).run(), pattern.is_markup());
}

}  // namespace nibble::text::jinja
