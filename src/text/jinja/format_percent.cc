// 'text' % values.
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
  FormatSpec read_spec();
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
  const Value* found = mapping_->is(Kind::kDict) ? mapping_->dict().find(runtime_, std::string_view(key)) : nullptr;
  if (found == nullptr) fail("format names the key '" + key + "', which is not there");
  return *found;
}

FormatSpec PercentFormatter::read_spec() {
  FormatSpec spec;
  for (; is_one_of(peek(), "-+ #0"); ++at_) {
    if (peek() == '-') spec.align = '<';
    if (peek() == '+' || (peek() == ' ' && spec.sign != '+')) spec.sign = peek();
    if (peek() == '#') spec.alternate = true;
    if (peek() == '0') spec.fill = "0";
  }
  if (peek() == '*') fail("'*' as a width in a format is not supported");
  spec.width = read_format_number(pattern_, at_);
  if (peek() == '.') {
    ++at_;
    spec.precision = read_format_number(pattern_, at_);
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
  FormatSpec spec = read_spec();
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

}  // namespace

Value format_percent(Runtime& runtime, const Value& pattern, const Value& values) {
  const bool is_tuple = values.is(Kind::kTuple);
  const bool is_mapping = values.is(Kind::kDict) || values.is(Kind::kList);
  const std::vector<Value> list = is_tuple ? values.items() : std::vector<Value>{values};
  PercentFormatter formatter(runtime, pattern.text(), pattern.is_markup());
  return runtime.string(formatter.run(list, is_mapping ? &values : nullptr, !is_mapping), pattern.is_markup());
}

}  // namespace nibble::text::jinja
