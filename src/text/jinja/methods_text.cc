// The methods of str.
#include <algorithm>

#include "text/jinja/format.h"
#include "text/jinja/methods.h"
#include "text/jinja/ops.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace nibble::text::jinja {
namespace {

const std::string& text_of(const Value& value, std::string_view what) {
  if (value.is(Kind::kUndefined)) fail_undefined(value);
  if (!value.is(Kind::kString)) fail(std::string(what) + " must be str, not " + type_name(value));
  return value.text();
}

Value like(Runtime& runtime, const Value& self, std::string text) {
  return runtime.string(std::move(text), self.is_markup());
}

Value to_list(Runtime& runtime, const Value& self, std::vector<std::string> pieces) {
  std::vector<Value> items;
  items.reserve(pieces.size());
  for (std::string& piece : pieces) items.push_back(like(runtime, self, std::move(piece)));
  return runtime.list(std::move(items));
}

bool given(const std::optional<Value>& value) {
  return value && !value->is(Kind::kNone);
}

// --- Trimming, splitting, replacing ---------------------------------------------------------------------------------

template <bool kLeft, bool kRight>
Value str_strip(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound = bind("strip", args, {"chars"});
  std::optional<std::string> characters;
  if (given(bound[0])) characters = text_of(*bound[0], "strip arg");
  runtime.charge_bytes(self.text().size() * (1 + (characters ? characters->size() / 16 : 0)));
  return like(runtime, self, strip(self.text(), characters, kLeft, kRight));
}

template <bool kFromRight>
Value str_split(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound = bind("split", args, {"sep", "maxsplit"});
  const std::int64_t limit = bound[1] ? to_integer(*bound[1], "maxsplit") : -1;
  runtime.charge_bytes(self.text().size());
  if (!given(bound[0])) return to_list(runtime, self, split_space(runtime, self.text(), limit, kFromRight));
  return to_list(runtime, self, split(runtime, self.text(), text_of(*bound[0], "separator"), limit, kFromRight));
}

Value str_splitlines(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound = bind("splitlines", args, {"keepends"});
  return to_list(runtime, self, split_lines(runtime, self.text(), bound[0] && truth(*bound[0])));
}

template <bool kFromRight>
Value str_partition(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound = bind("partition", args, {"sep"}, 1);
  const std::string& text = self.text();
  const std::string& separator = text_of(*bound[0], "separator");
  if (separator.empty()) fail("empty separator");
  const std::size_t found = kFromRight ? find_last_text(runtime, text, separator) : find_text(runtime, text, separator);
  if (found == std::string::npos) {
    const Value empty = like(runtime, self, "");
    return kFromRight ? runtime.tuple({empty, empty, self}) : runtime.tuple({self, empty, empty});
  }
  return runtime.tuple({like(runtime, self, text.substr(0, found)), like(runtime, self, separator),
                        like(runtime, self, text.substr(found + separator.size()))});
}

Value str_replace(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound = bind("replace", args, {"old", "new", "count"}, 2);
  const std::int64_t limit = bound[2] ? to_integer(*bound[2], "count") : -1;
  const std::string& old = text_of(*bound[0], "replace argument 1");
  std::string with = text_of(*bound[1], "replace argument 2");
  if (self.is_markup() && !bound[1]->is_markup()) with = escape_markup(runtime, with);
  return like(runtime, self, replace(runtime, self.text(), old, with, limit < 0 ? -1 : limit));
}

Value str_removeprefix(Runtime& runtime, const Value& self, const Args& args) {
  const std::string& prefix = text_of(*bind("removeprefix", args, {"prefix"}, 1)[0], "prefix");
  runtime.charge_bytes(self.text().size());
  return self.text().starts_with(prefix) ? like(runtime, self, self.text().substr(prefix.size())) : self;
}

Value str_removesuffix(Runtime& runtime, const Value& self, const Args& args) {
  const std::string& suffix = text_of(*bind("removesuffix", args, {"suffix"}, 1)[0], "suffix");
  const std::string& text = self.text();
  runtime.charge_bytes(text.size());
  return text.ends_with(suffix) ? like(runtime, self, text.substr(0, text.size() - suffix.size())) : self;
}

Value str_join(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound = bind("join", args, {"iterable"}, 1);
  const bool markup = self.is_markup();
  TextBuilder out(runtime);
  bool first = true;
  for (const Value& item : to_vector(runtime, *bound[0])) {
    if (!first) out << self.text();
    first = false;
    const std::string& text = text_of(item, "sequence item");
    out << (markup && !item.is_markup() ? escape_markup(runtime, text) : text);
  }
  return like(runtime, self, out.take());
}

Value str_format(Runtime& runtime, const Value& self, const Args& args) {
  return format_braces(runtime, self, args);
}

// --- Searching ------------------------------------------------------------------------------------------------------

// The part of the text between the optional arguments `start` and `end`, which count code points.
struct Window {
  std::string_view text;
  std::size_t offset;  // of its start, in code points
  bool valid;          // start is not past the end of the text
};

Window window(Runtime& runtime, const Value& self, const std::optional<Value>& start, const std::optional<Value>& end) {
  const std::string_view text = self.text();
  if (!given(start) && !given(end)) return {text, 0, true};
  runtime.charge_bytes(text.size());
  const auto count = static_cast<std::int64_t>(count_code_points(text));
  const auto bound = [count](const std::optional<Value>& value, std::int64_t absent) {
    if (!given(value)) return absent;
    std::int64_t index = to_integer(*value, "slice index");
    if (index < 0) index = std::max<std::int64_t>(index + count, 0);
    return index;
  };
  const std::int64_t from = bound(start, 0);
  const std::int64_t to = std::min(bound(end, count), count);
  if (from > to) return {{}, 0, false};
  const std::size_t first = byte_offset(text, static_cast<std::size_t>(from));
  const std::size_t last = byte_offset(text, static_cast<std::size_t>(to));
  return {text.substr(first, last - first), static_cast<std::size_t>(from), true};
}

template <bool kFromRight, bool kMustFind>
Value str_find(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound = bind("find", args, {"sub", "start", "end"}, 1);
  const std::string& needle = text_of(*bound[0], "find argument");
  const Window part = window(runtime, self, bound[1], bound[2]);
  std::size_t found = std::string::npos;
  if (part.valid) {
    found = kFromRight ? find_last_text(runtime, part.text, needle) : find_text(runtime, part.text, needle);
  }
  if (found == std::string::npos) {
    if (kMustFind) fail("substring not found");
    return Value::integer(-1);
  }
  return Value::integer(static_cast<std::int64_t>(part.offset + count_code_points(part.text.substr(0, found))));
}

Value str_count(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound = bind("count", args, {"sub", "start", "end"}, 1);
  const std::string& needle = text_of(*bound[0], "count argument");
  const Window part = window(runtime, self, bound[1], bound[2]);
  if (!part.valid) return Value::integer(0);
  if (needle.empty()) return Value::integer(static_cast<std::int64_t>(count_code_points(part.text)) + 1);
  std::int64_t n = 0;
  for (std::size_t at = 0; (at = find_text(runtime, part.text, needle, at)) != std::string::npos; at += needle.size())
    ++n;
  return Value::integer(n);
}

template <bool kPrefix>
Value str_affix(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound = bind(kPrefix ? "startswith" : "endswith", args, {"affix", "start", "end"}, 1);
  const Window part = window(runtime, self, bound[1], bound[2]);
  const auto matches = [&](const Value& affix) {
    runtime.charge(1);
    const std::string& text = text_of(affix, kPrefix ? "startswith argument" : "endswith argument");
    runtime.charge_bytes(std::min(text.size(), part.text.size()));
    return part.valid && (kPrefix ? part.text.starts_with(text) : part.text.ends_with(text));
  };
  if (!bound[0]->is(Kind::kTuple)) return Value::boolean(matches(*bound[0]));
  return Value::boolean(std::any_of(bound[0]->items().begin(), bound[0]->items().end(), matches));
}

// --- Case and padding -----------------------------------------------------------------------------------------------

template <std::string (*kConvert)(std::string_view)>
Value str_convert(Runtime& runtime, const Value& self, const Args& args) {
  bind("case conversion", args, {});
  runtime.charge_bytes(self.text().size() * 4);
  return like(runtime, self, kConvert(self.text()));
}

bool is_alphanumeric(char32_t c) {
  return is_letter(c) || is_number(c);
}

bool is_ascii_character(char32_t c) {
  return c < 0x80;
}

// True when every character passes; of an empty text what `kOfEmpty` says.
template <bool (*kAsk)(char32_t), bool kOfEmpty = false>
Value str_all(Runtime& runtime, const Value& self, const Args& args) {
  bind("character test", args, {});
  const std::string& text = self.text();
  runtime.charge_bytes(text.size() * 8);
  for (std::size_t at = 0; at < text.size();) {
    if (!kAsk(next_code_point(text, at))) return Value::boolean(false);
  }
  return Value::boolean(kOfEmpty || !text.empty());
}

template <bool kUpper>
Value str_is_case(Runtime& runtime, const Value& self, const Args& args) {
  bind("case test", args, {});
  runtime.charge_bytes(self.text().size() * 8);
  return Value::boolean(is_all_of_case(self.text(), kUpper));
}

enum class Side : std::uint8_t { kLeft, kRight, kBoth };

template <Side kSide>
Value str_pad(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound = bind("justification", args, {"width", "fillchar"}, 1);
  const std::string fill = bound[1] ? text_of(*bound[1], "fill character") : " ";
  if (count_code_points(fill) != 1) fail("the fill character must be exactly one character long");
  runtime.charge_bytes(self.text().size());
  const auto size = static_cast<std::int64_t>(count_code_points(self.text()));
  const std::int64_t missing = to_integer(*bound[0], "width") - size;
  if (missing <= 0) return self;
  runtime.check_room(static_cast<std::size_t>(std::min<std::int64_t>(missing, INT64_MAX / 8)) * fill.size());
  // str.center puts the odd one on the left only when width is odd, too.
  const std::int64_t left = kSide == Side::kLeft    ? 0
                            : kSide == Side::kRight ? missing
                                                    : missing / 2 + (missing & (missing + size) & 1);
  TextBuilder out(runtime);
  for (std::int64_t i = 0; i < left; ++i) out << fill;
  out << self.text();
  for (std::int64_t i = left; i < missing; ++i) out << fill;
  return like(runtime, self, out.take());
}

Value str_zfill(Runtime& runtime, const Value& self, const Args& args) {
  const std::int64_t width = to_integer(*bind("zfill", args, {"width"}, 1)[0], "width");
  const std::string& text = self.text();
  runtime.charge_bytes(text.size());
  const std::int64_t missing = width - static_cast<std::int64_t>(count_code_points(text));
  if (missing <= 0) return self;
  const bool has_sign = text.starts_with('+') || text.starts_with('-');
  runtime.check_room(static_cast<std::size_t>(missing));
  runtime.charge_bytes(static_cast<std::size_t>(missing));
  return like(runtime, self,
              text.substr(0, has_sign ? 1 : 0) + std::string(static_cast<std::size_t>(missing), '0') +
                  text.substr(has_sign ? 1 : 0));
}

// --- Tables ---------------------------------------------------------------------------------------------------------

constexpr NamedMethod kMethods[] = {
    {"strip", str_strip<true, true>},
    {"lstrip", str_strip<true, false>},
    {"rstrip", str_strip<false, true>},
    {"split", str_split<false>},
    {"rsplit", str_split<true>},
    {"splitlines", str_splitlines},
    {"partition", str_partition<false>},
    {"rpartition", str_partition<true>},
    {"replace", str_replace},
    {"removeprefix", str_removeprefix},
    {"removesuffix", str_removesuffix},
    {"join", str_join},
    {"format", str_format},
    {"find", str_find<false, false>},
    {"rfind", str_find<true, false>},
    {"index", str_find<false, true>},
    {"rindex", str_find<true, true>},
    {"count", str_count},
    {"startswith", str_affix<true>},
    {"endswith", str_affix<false>},
    {"upper", str_convert<to_upper>},
    {"lower", str_convert<to_lower>},
    {"capitalize", str_convert<capitalize>},
    {"title", str_convert<title_case>},
    {"ljust", str_pad<Side::kLeft>},
    {"rjust", str_pad<Side::kRight>},
    {"center", str_pad<Side::kBoth>},
    {"zfill", str_zfill},
    {"isalnum", str_all<is_alphanumeric>},
    {"isalpha", str_all<is_letter>},
    {"isascii", str_all<is_ascii_character, true>},
    {"isdecimal", str_all<is_decimal>},
    {"isdigit", str_all<is_digit_character>},
    {"isprintable", str_all<is_printable, true>},
    {"isspace", str_all<is_space>},
    {"islower", str_is_case<false>},
    {"isupper", str_is_case<true>},
};
constexpr std::string_view kUnsupported[] = {"casefold",  "encode",  "expandtabs", "format_map", "isidentifier",
                                             "isnumeric", "istitle", "maketrans",  "swapcase",   "translate"};

}  // namespace

std::span<const NamedMethod> text_methods() {
  return kMethods;
}

std::span<const std::string_view> unsupported_text_methods() {
  return kUnsupported;
}

}  // namespace nibble::text::jinja
