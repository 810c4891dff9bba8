// Filters that make text.
#include <cctype>

#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace nibble::text::jinja {

Value soft_string(Runtime& runtime, const Value& value) {
  return value.is(Kind::kString) ? value : runtime.string(to_str(runtime, value));
}

namespace {

Value method(Runtime& runtime, const Value& input, std::string_view name, const Args& args) {
  const Value text = soft_string(runtime, input);
  return call(runtime, get_attribute(runtime, text, name), args);
}

Value filter_string(Runtime& runtime, const Value& input, const Args& args) {
  bind("string", args, {});
  return soft_string(runtime, input);
}

Value filter_safe(Runtime& runtime, const Value& input, const Args& args) {
  bind("safe", args, {});
  return runtime.string(to_str(runtime, input), true);
}

Value filter_escape(Runtime& runtime, const Value& input, const Args& args) {
  bind("escape", args, {});
  if (input.is_markup()) return input;
  return runtime.string(escape_markup(runtime, to_str(runtime, input)), true);
}

Value filter_forceescape(Runtime& runtime, const Value& input, const Args& args) {
  bind("forceescape", args, {});
  return runtime.string(escape_markup(runtime, to_str(runtime, input)), true);
}

Value filter_trim(Runtime& runtime, const Value& input, const Args& args) {
  return method(runtime, input, "strip", args);
}

Value filter_upper(Runtime& runtime, const Value& input, const Args& args) {
  return method(runtime, input, "upper", args);
}

Value filter_lower(Runtime& runtime, const Value& input, const Args& args) {
  return method(runtime, input, "lower", args);
}

Value filter_capitalize(Runtime& runtime, const Value& input, const Args& args) {
  return method(runtime, input, "capitalize", args);
}

// Unlike str.title(): words start after blanks and after - ( { [ <, and nowhere else.
Value filter_title(Runtime& runtime, const Value& input, const Args& args) {
  bind("title", args, {});
  const std::string text = to_str(runtime, input);
  runtime.charge_bytes(text.size() * 4);
  std::string result;
  bool at_start = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t c = next_code_point(text, at);
    const std::string piece = text.substr(start, at - start);
    const bool separates =
        is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
    result += at_start ? to_upper(piece) : to_lower(piece);
    at_start = separates;
  }
  return runtime.string(std::move(result));
}

Value filter_center(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound = bind("center", args, {"width"});
  return method(runtime, input, "center", Args{{bound[0].value_or(Value::integer(80))}, {}});
}

Value filter_replace(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound = bind("replace", args, {"old", "new", "count"}, 2);
  const bool limited = bound[2] && !bound[2]->is(Kind::kNone);
  const std::int64_t limit = limited ? to_integer(*bound[2], "count") : -1;
  return runtime.string(replace(runtime, to_str(runtime, input), to_str(runtime, *bound[0]), to_str(runtime, *bound[1]),
                                limit < 0 ? -1 : limit));
}

Value filter_format(Runtime& runtime, const Value& input, const Args& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    fail("format: positional and keyword arguments cannot be mixed");
  }
  const Value pattern = soft_string(runtime, input);
  if (args.named.empty()) return format_percent(runtime, pattern, runtime.tuple(args.positional));
  std::vector<Dict::Entry> entries;
  for (const auto& [name, value] : args.named) entries.emplace_back(runtime.string(name), value);
  return format_percent(runtime, pattern, runtime.dict(std::move(entries)));
}

Value filter_indent(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound = bind("indent", args, {"width", "first", "blank"});
  if (input.is(Kind::kUndefined)) fail_undefined(input);
  if (!input.is(Kind::kString)) fail("indent: a string is needed, not " + type_name(input));
  std::string indentation = "    ";
  if (bound[0] && bound[0]->is(Kind::kString)) {
    indentation = bound[0]->text();
  } else if (bound[0]) {
    const std::int64_t width = std::max<std::int64_t>(to_integer(*bound[0], "indent width"), 0);
    runtime.check_room(static_cast<std::size_t>(width));
    indentation = std::string(static_cast<std::size_t>(width), ' ');
  }
  const bool blank_lines = flag(bound[2]);
  TextBuilder out(runtime);
  if (flag(bound[1])) out << indentation;
  bool first = true;
  for (const std::string& line : split_lines(runtime, input.text() + "\n", false)) {
    if (!first) out << '\n';
    if (!first && (blank_lines || !line.empty())) out << indentation;
    out << line;
    first = false;
  }
  return runtime.string(out.take(), input.is_markup());
}

Value filter_truncate(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound = bind("truncate", args, {"length", "killwords", "end", "leeway"});
  if (!input.is(Kind::kString) && !length(input)) fail("object of type '" + type_name(input) + "' has no len()");
  const std::string end = bound[2] ? to_str(runtime, *bound[2]) : "...";
  const std::int64_t limit = bound[0] ? to_integer(*bound[0], "length") : 255;
  const std::int64_t leeway = bound[3] && !bound[3]->is(Kind::kNone) ? to_integer(*bound[3], "leeway") : 5;
  const std::int64_t keep = limit - static_cast<std::int64_t>(count_code_points(end));
  if (keep < 0) fail("truncate: length is less than that of the end mark");
  if (leeway < 0) fail("truncate: leeway must not be negative");
  if (input.is(Kind::kString)) runtime.charge_bytes(input.text().size());
  const auto count = static_cast<std::int64_t>(*length(input));
  if (count <= limit || count - limit <= leeway) return input;
  if (!input.is(Kind::kString)) fail("truncate: a string is needed, not " + type_name(input));
  const std::string& text = input.text();
  std::string kept = text.substr(0, byte_offset(text, static_cast<std::size_t>(keep)));
  const std::size_t blank = kept.rfind(' ');
  if (!flag(bound[1]) && blank != std::string::npos) kept.resize(blank);
  return runtime.string(kept + end);
}

Value filter_urlencode(Runtime& runtime, const Value& input, const Args& args) {
  bind("urlencode", args, {});
  if (!input.is(Kind::kString) && is_iterable(input)) fail("urlencode of anything but text is not supported");
  static constexpr char kDigits[] = "0123456789ABCDEF";
  TextBuilder out(runtime);
  for (const char c : to_str(runtime, input)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = std::isalnum(byte) != 0 || std::string_view("_.-~/").find(c) != std::string_view::npos;
    if (plain && byte < 0x80) {
      out << c;
    } else {
      out << '%' << kDigits[byte >> 4] << kDigits[byte & 15];
    }
  }
  return runtime.string(out.take());
}

std::optional<std::string> json_indent(const std::optional<Value>& value) {
  if (!value || value->is(Kind::kNone)) return std::nullopt;
  if (value->is(Kind::kString)) return value->text();
  const std::int64_t width = to_integer(*value, "indent");
  if (width > 1000) fail("tojson: indent is too large");
  return std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
}

// As transformers defines it: json.dumps without HTML escapes, and with its arguments.
Value filter_tojson(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound = bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii_only = flag(bound[0]);
  style.indent = json_indent(bound[1]);
  if (style.indent) style.item_separator = ",";
  if (bound[2] && !bound[2]->is(Kind::kNone)) {
    const std::vector<Value> separators = to_vector(runtime, *bound[2]);
    if (separators.size() != 2 || !separators[0].is(Kind::kString) || !separators[1].is(Kind::kString)) {
      fail("tojson: separators must be two strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  style.sort_keys = flag(bound[3]);
  return runtime.string(to_json(runtime, input, style));
}

constexpr NamedFilter kFilters[] = {
    {"string", filter_string},       {"safe", filter_safe},     {"e", filter_escape},
    {"escape", filter_escape},       {"trim", filter_trim},     {"forceescape", filter_forceescape},
    {"upper", filter_upper},         {"lower", filter_lower},   {"capitalize", filter_capitalize},
    {"title", filter_title},         {"center", filter_center}, {"replace", filter_replace},
    {"format", filter_format},       {"indent", filter_indent}, {"truncate", filter_truncate},
    {"urlencode", filter_urlencode}, {"tojson", filter_tojson},
};

}  // namespace

std::span<const NamedFilter> text_filters() {
  return kFilters;
}

}  // namespace nibble::text::jinja
