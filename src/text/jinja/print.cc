#include "text/jinja/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/ops.h"
#include "text/jinja/unicode.h"

namespace nibble::text::jinja {
namespace {

void write_repr(Runtime& runtime, TextBuilder& out, const Value& value);

void write_string_repr(TextBuilder& out, std::string_view text) {
  const bool use_double = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = use_double ? '"' : '\'';
  out << quote;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t c = next_code_point(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out << '\\' << static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out << (c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    } else if (is_printable(c)) {
      out << text.substr(start, at - start);
    } else {
      const auto code = static_cast<std::uint32_t>(c);
      out << (code < 0x100     ? fmt::format("\\x{:02x}", code)
              : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                               : fmt::format("\\U{:08x}", code));
    }
  }
  out << quote;
}

void write_items(Runtime& runtime, TextBuilder& out, const std::vector<Value>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out << ", ";
    write_repr(runtime, out, items[i]);
  }
}

template <typename Pairs, typename WriteKey>
void write_entries(Runtime& runtime, TextBuilder& out, const Pairs& pairs, WriteKey write_key) {
  out << '{';
  bool first = true;
  for (const auto& [key, value] : pairs) {
    if (!first) out << ", ";
    first = false;
    write_key(key);
    out << ": ";
    write_repr(runtime, out, value);
  }
  out << '}';
}

void write_host(Runtime& runtime, TextBuilder& out, const Value& value) {
  // Python would print an address here, which no two runs share.
  const std::string text = value.is(Kind::kHost) ? value.as<Host>().repr(runtime) : std::string();
  if (text.empty()) fail("a '" + type_name(value) + "' object has no text that could be printed");
  out << text;
}

void write_repr(Runtime& runtime, TextBuilder& out, const Value& value) {
  const RecursionGuard guard(runtime);
  switch (value.kind()) {
    case Kind::kUndefined:
      out << "Undefined";
      return;
    case Kind::kNone:
      out << "None";
      return;
    case Kind::kBool:
      out << (value.integer_value() != 0 ? "True" : "False");
      return;
    case Kind::kInt:
      out << std::to_string(value.integer_value());
      return;
    case Kind::kFloat:
      out << float_repr(value.real_value());
      return;
    case Kind::kString:
      if (value.is_markup()) out << "Markup(";
      write_string_repr(out, value.text());
      if (value.is_markup()) out << ')';
      return;
    case Kind::kList:
      out << '[';
      write_items(runtime, out, value.items());
      out << ']';
      return;
    case Kind::kTuple:
      out << '(';
      write_items(runtime, out, value.items());
      out << (value.items().size() == 1 ? ",)" : ")");
      return;
    case Kind::kDict:
      write_entries(runtime, out, value.dict().entries(), [&](const Value& key) { write_repr(runtime, out, key); });
      return;
    case Kind::kDictView:
      out << type_name(value) << "([";
      write_items(runtime, out, to_vector(runtime, value));
      out << "])";
      return;
    case Kind::kRange: {
      const auto& range = value.as<Range>();
      out << fmt::format("range({}, {}", range.start, range.stop);
      out << (range.step == 1 ? std::string(")") : fmt::format(", {})", range.step));
      return;
    }
    case Kind::kNamespace:
      out << "<Namespace ";
      write_entries(runtime, out, value.as<Namespace>().attributes,
                    [&](const std::string& key) { write_string_repr(out, key); });
      out << '>';
      return;
    case Kind::kIterator:
    case Kind::kHost:
      write_host(runtime, out, value);
  }
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style), out_(runtime) {}
  std::string write(const Value& value) {
    write_value(value, 0);
    return out_.take();
  }

 private:
  void write_value(const Value& value, int level);
  void write_text(std::string_view text);
  void write_list(const std::vector<Value>& items, int level);
  void write_dict(const Dict& dict, int level);
  std::string key_text(const Value& key);
  void new_line(int level) {
    if (!style_.indent) return;
    out_ << '\n';
    for (int i = 0; i < level; ++i) out_ << *style_.indent;
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  TextBuilder out_;
};

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_repr(value);
}

void JsonWriter::write_text(std::string_view text) {
  static constexpr std::string_view kPlain = "\"\\\n\r\t\b\f";
  static constexpr std::string_view kLetters = "\"\\nrtbf";
  out_ << '"';
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t c = next_code_point(text, at);
    const std::size_t known = c < 0x80 ? kPlain.find(static_cast<char>(c)) : std::string_view::npos;
    if (known == std::string_view::npos && c >= 0x20 && (c < 0x80 || !style_.ascii_only)) continue;
    out_ << text.substr(done, start - done);
    done = at;
    const auto code = static_cast<std::uint32_t>(c);
    if (known != std::string_view::npos) {
      out_ << '\\' << kLetters[known];
    } else if (code < 0x10000) {
      out_ << fmt::format("\\u{:04x}", code);
    } else {
      const std::uint32_t rest = code - 0x10000;
      out_ << fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    }
  }
  out_ << text.substr(done) << '"';
}

void JsonWriter::write_list(const std::vector<Value>& items, int level) {
  out_ << '[';
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_ << style_.item_separator;
    new_line(level + 1);
    write_value(items[i], level + 1);
  }
  if (!items.empty()) new_line(level);
  out_ << ']';
}

std::string JsonWriter::key_text(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
      return key.text();
    case Kind::kBool:
      return key.integer_value() != 0 ? "true" : "false";
    case Kind::kInt:
      return std::to_string(key.integer_value());
    case Kind::kFloat:
      return json_float(key.real_value());
    case Kind::kNone:
      return "null";
    default:
      fail("keys must be str, int, float, bool or None, not " + type_name(key));
  }
}

void JsonWriter::write_dict(const Dict& dict, int level) {
  std::vector<const Dict::Entry*> entries;
  for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
  if (style_.sort_keys) {
    std::stable_sort(entries.begin(), entries.end(),
                     [this](const auto* a, const auto* b) { return less(runtime_, a->first, b->first); });
  }
  out_ << '{';
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out_ << style_.item_separator;
    new_line(level + 1);
    write_text(key_text(entries[i]->first));
    out_ << style_.key_separator;
    write_value(entries[i]->second, level + 1);
  }
  if (!entries.empty()) new_line(level);
  out_ << '}';
}

void JsonWriter::write_value(const Value& value, int level) {
  const RecursionGuard guard(runtime_);
  switch (value.kind()) {
    case Kind::kNone:
      out_ << "null";
      return;
    case Kind::kBool:
      out_ << (value.integer_value() != 0 ? "true" : "false");
      return;
    case Kind::kInt:
      out_ << std::to_string(value.integer_value());
      return;
    case Kind::kFloat:
      out_ << json_float(value.real_value());
      return;
    case Kind::kString:
      return write_text(value.text());
    case Kind::kList:
    case Kind::kTuple:
      return write_list(value.items(), level);
    case Kind::kDict:
      return write_dict(value.dict(), level);
    default:
      fail("Object of type " + type_name(value) + " is not JSON serializable");
  }
}

}  // namespace

// The shortest digits that read back as the same double, in Python's layout: an exponent below 1e-4 and from 1e16.
std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t mark = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(mark + 1)).c_str());
  if (exponent < -4 || exponent >= 16) return std::string(text);
  const auto [fixed_end, fixed_error] = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string fixed(buffer, static_cast<std::size_t>(fixed_end - buffer));
  if (fixed.find('.') == std::string::npos) fixed += ".0";
  return fixed;
}

std::string to_repr(Runtime& runtime, const Value& value) {
  TextBuilder out(runtime);
  write_repr(runtime, out, value);
  return out.take();
}

std::string to_str(Runtime& runtime, const Value& value) {
  if (value.is(Kind::kString)) return value.text();
  if (value.is(Kind::kUndefined)) return "";
  return to_repr(runtime, value);
}

std::string escape_markup(Runtime& runtime, const std::string& text) {
  TextBuilder out(runtime);
  for (const char c : text) {
    switch (c) {
      case '&':
        out << "&amp;";
        break;
      case '<':
        out << "&lt;";
        break;
      case '>':
        out << "&gt;";
        break;
      case '\'':
        out << "&#39;";
        break;
      case '"':
        out << "&#34;";
        break;
      default:
        out << c;
    }
  }
  return out.take();
}

std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  return JsonWriter(runtime, style).write(value);
}

}  // namespace nibble::text::jinja
