#include "text/jinja_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace nibble::text::jinja {
namespace {

constexpr int kMaxWidth = 100'000;  // of one formatted value

// A conversion as both languages have it: %-08.3f and {:<08.3f}.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =, or 0: the type's own
  char sign = '-';    // '-': only of negative numbers, '+', ' '
  bool alternate = false;
  char grouping = '\0';  // ',' or '_'
  int width = 0;
  int precision = -1;
  char type = '\0';
};

std::string pad(const std::string& text, const Spec& spec, char default_align) {
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

std::string finish_number(bool negative, std::string digits, const Spec& spec) {
  if (spec.grouping != '\0') digits = group_digits(digits, spec.grouping);
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  return pad(sign + digits, spec, '>');
}

std::string format_integer(std::int64_t value, const Spec& spec) {
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

std::string format_float(double value, const Spec& spec) {
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

std::string format_text(std::string text, const Spec& spec) {
  if (spec.precision >= 0) text.resize(byte_offset(text, static_cast<std::size_t>(spec.precision)));
  return pad(text, spec, '<');
}

int read_number(std::string_view text, std::size_t& at) {
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

// --- 'text' % values ------------------------------------------------------------------------------------------------

class PercentFormatter {
 public:
  // `markup`: the pattern is safe HTML, so that the texts put into it are escaped.
  PercentFormatter(Runtime& runtime, std::string_view pattern, bool markup)
      : runtime_(runtime), pattern_(pattern), markup_(markup), out_(runtime) {}

  // `mapping` is what %(name)s reads; `all_used` whether values left over are an error.
  std::string run(const std::vector<Value>& values, const Value* mapping, bool all_used) {
    values_ = &values;
    mapping_ = mapping;
    for (at_ = 0; at_ < pattern_.size();) {
      const std::size_t percent = std::min(pattern_.find('%', at_), pattern_.size());
      out_ << pattern_.substr(at_, percent - at_);
      at_ = percent;
      if (at_ < pattern_.size()) convert();
    }
    if (all_used && next_ < values.size()) fail("not all arguments converted during string formatting");
    return out_.take();
  }

 private:
  char peek() const { return at_ < pattern_.size() ? pattern_[at_] : '\0'; }
  const Value& next_value() {
    if (next_ >= values_->size()) fail("not enough arguments for format string");
    return (*values_)[next_++];
  }
  Value read_key();
  Spec read_spec();
  void convert();

  std::string text_of(const Value& value, bool repr);

  Runtime& runtime_;
  std::string_view pattern_;
  const bool markup_;
  TextBuilder out_;
  const std::vector<Value>* values_ = nullptr;
  const Value* mapping_ = nullptr;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
};

Value PercentFormatter::read_key() {
  const std::size_t end = pattern_.find(')', at_);
  if (end == std::string_view::npos) fail("incomplete format key");
  if (mapping_ == nullptr) fail("format requires a mapping");
  const std::string key(pattern_.substr(at_ + 1, end - at_ - 1));
  at_ = end + 1;
  const Value* found = mapping_->is(Kind::kDict) ? mapping_->dict().find(std::string_view(key)) : nullptr;
  if (found == nullptr) fail("format names the key '" + key + "', which is not there");
  return *found;
}

Spec PercentFormatter::read_spec() {
  Spec spec;
  for (; is_one_of(peek(), "-+ #0"); ++at_) {
    if (peek() == '-') spec.align = '<';
    if (peek() == '+' || (peek() == ' ' && spec.sign != '+')) spec.sign = peek();
    if (peek() == '#') spec.alternate = true;
    if (peek() == '0') spec.fill = "0";
  }
  if (peek() == '*') fail("'*' as a width in a format is not supported");
  spec.width = read_number(pattern_, at_);
  if (peek() == '.') {
    ++at_;
    spec.precision = read_number(pattern_, at_);
  }
  while (is_one_of(peek(), "hlL")) ++at_;
  spec.type = peek();
  if (spec.type == '\0') fail("incomplete format");
  ++at_;
  return spec;
}

std::string PercentFormatter::text_of(const Value& value, bool repr) {
  std::string text = repr ? to_repr(runtime_, value) : to_str(runtime_, value);
  return markup_ && (repr || !value.is_markup()) ? escape_markup(runtime_, text) : text;
}

void PercentFormatter::convert() {
  ++at_;
  std::optional<Value> keyed;
  if (peek() == '(') keyed = read_key();
  Spec spec = read_spec();
  if (spec.type == '%') {
    out_ << '%';
    return;
  }
  const Value value = keyed ? *keyed : next_value();
  const bool left = spec.align == '<';
  if (left) spec.fill = " ";
  switch (spec.type) {
    case 's':
    case 'r':
      spec.fill = " ";
      spec.align = left ? '<' : '>';
      out_ << format_text(text_of(value, spec.type == 'r'), spec);
      return;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
      if (value.is(Kind::kUndefined)) fail_undefined(value);
      if (!value.is_number() || (is_one_of(spec.type, "xXo") && value.is(Kind::kFloat))) {
        fail("%" + std::string(1, spec.type) + " format: a number is required, not " + type_name(value));
      }
      if (std::fabs(value.real_value()) >= 9.2e18 && value.is(Kind::kFloat))
        fail("float is too large for an integer format");
      if (spec.precision >= 0) fail("a precision in an integer format is not supported");
      if (!left && spec.fill == "0") spec.align = '=';
      out_ << format_integer(
          value.is(Kind::kFloat) ? static_cast<std::int64_t>(value.real_value()) : value.integer_value(), spec);
      return;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      if (value.is(Kind::kUndefined)) fail_undefined(value);
      if (!value.is_number()) fail("must be real number, not " + type_name(value));
      if (!left && spec.fill == "0") spec.align = '=';
      if (is_one_of(spec.type, "gG") && spec.precision == 0) spec.precision = 1;
      out_ << format_float(value.real_value(), spec);
      return;
    default:
      fail("unsupported format character '" + std::string(1, spec.type) + "'");
  }
}

// --- 'text'.format(values) ------------------------------------------------------------------------------------------

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
  Spec read_spec(std::string_view text);

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
  const std::size_t index = name.empty() ? next_++ : static_cast<std::size_t>(read_number(name, at));
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
    const Value key = is_index ? Value::integer(read_number(part, digits)) : runtime_.string(std::string(part));
    value = is_attribute ? get_attribute(runtime_, value, part) : get_item(runtime_, value, key);
    at = is_attribute ? end : end + 1;
    if (at < name.size() && !is_one_of(name[at], ".["))
      fail("only '.' or '[' may follow ']' in format field specifier");
  }
  return value;
}

Spec BraceFormatter::read_spec(std::string_view text) {
  Spec spec;
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
  spec.width = read_number(text, at);
  if (is_one_of(peek(), ",_")) spec.grouping = text[at++];
  if (peek() == '.') {
    ++at;
    if (!std::isdigit(static_cast<unsigned char>(peek()))) fail("format specifier missing precision");
    spec.precision = read_number(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) fail("invalid format specifier '" + std::string(text) + "'");
  if (spec.grouping != '\0' && spec.align == '=') fail("zero padding of grouped digits is not supported");
  return spec;
}

std::string BraceFormatter::format_value(const Value& value, std::string_view text) {
  if (text.empty()) return to_str(runtime_, value);
  Spec spec = read_spec(text);
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

Value format_percent(Runtime& runtime, const Value& pattern, const Value& values) {
  const bool is_tuple = values.is(Kind::kTuple);
  const bool is_mapping = values.is(Kind::kDict) || values.is(Kind::kList);
  const std::vector<Value> list = is_tuple ? values.items() : std::vector<Value>{values};
  PercentFormatter formatter(runtime, pattern.text(), pattern.is_markup());
  return runtime.string(formatter.run(list, is_mapping ? &values : nullptr, !is_mapping), pattern.is_markup());
}

Value format_braces(Runtime& runtime, const Value& pattern, const Args& args) {
  return runtime.string(BraceFormatter(runtime, pattern.text(), pattern.is_markup(), args).run(), pattern.is_markup());
}

std::string format_time(const std::string& pattern, const std::tm& time) {
  static constexpr const char* kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
  static constexpr const char* kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                            "July",    "August",   "September", "October", "November", "December"};
  const std::string day = kDays[std::clamp(time.tm_wday, 0, 6)];
  const std::string month = kMonths[std::clamp(time.tm_mon, 0, 11)];
  const int hour12 = time.tm_hour % 12 == 0 ? 12 : time.tm_hour % 12;
  std::string text;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      text += pattern[i];
      continue;
    }
    const bool plain = i + 1 < pattern.size() && pattern[i + 1] == '-';  // %-d: without leading zeros
    i += plain ? 2 : 1;
    const auto two = [plain](int value) { return fmt::format(fmt::runtime(plain ? "{}" : "{:02}"), value); };
    switch (i < pattern.size() ? pattern[i] : '\0') {
      case 'Y':
        text += std::to_string(time.tm_year + 1900);
        break;
      case 'y':
        text += two(time.tm_year % 100);
        break;
      case 'm':
        text += two(time.tm_mon + 1);
        break;
      case 'd':
        text += two(time.tm_mday);
        break;
      case 'H':
        text += two(time.tm_hour);
        break;
      case 'I':
        text += two(hour12);
        break;
      case 'M':
        text += two(time.tm_min);
        break;
      case 'S':
        text += two(time.tm_sec);
        break;
      case 'B':
        text += month;
        break;
      case 'b':
        text += month.substr(0, 3);
        break;
      case 'A':
        text += day;
        break;
      case 'a':
        text += day.substr(0, 3);
        break;
      case 'p':
        text += time.tm_hour < 12 ? "AM" : "PM";
        break;
      case 'j':
        text += fmt::format(fmt::runtime(plain ? "{}" : "{:03}"), time.tm_yday + 1);
        break;
      case 'F':
        text += fmt::format("{}-{:02}-{:02}", time.tm_year + 1900, time.tm_mon + 1, time.tm_mday);
        break;
      case 'T':
        text += fmt::format("{:02}:{:02}:{:02}", time.tm_hour, time.tm_min, time.tm_sec);
        break;
      case '%':
        text += '%';
        break;
      default:
        fail("strftime_now: unsupported directive in '" + pattern + "'");
    }
  }
  return text;
}

}  // namespace nibble::text::jinja
