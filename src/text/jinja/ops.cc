#include "text/jinja/ops.h"

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace nibble::text::jinja {
namespace {

std::string describe(const Value& value) {
  return value.is(Kind::kNone) ? "None" : type_name(value) + " object";
}

// Undefined values remember the reason; it is shown with what was looked up.
Value missing_item(Runtime& runtime, const Value& object, const Value& key) {
  if (key.is(Kind::kString)) {
    return runtime.undefined("'" + describe(object) + "' has no attribute '" + key.text() + "'");
  }
  return runtime.undefined(describe(object) + " has no element " + to_repr(runtime, key));
}

std::optional<Value> element(Runtime& runtime, const Value& object, std::int64_t index) {
  const std::optional<std::size_t> size = length(object);
  const auto count = static_cast<std::int64_t>(*size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::nullopt;
  const auto at = static_cast<std::size_t>(index);
  if (object.is_sequence()) return object.items()[at];
  if (object.is(Kind::kRange)) return Value::integer(object.as<Range>().at(at));
  const std::string& text = object.text();
  runtime.charge_bytes(text.size());
  const std::size_t start = byte_offset(text, at);
  std::size_t end = start;
  next_code_point(text, end);
  return runtime.string(text.substr(start, end - start), object.is_markup());
}

std::optional<Value> item_or_nothing(Runtime& runtime, const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::kDict: {
      const bool hashable = !key.is(Kind::kList) && !key.is(Kind::kDict) && !key.is(Kind::kDictView);
      const Value* found = hashable ? object.dict().find(runtime, key) : nullptr;
      return found != nullptr ? std::optional<Value>(*found) : std::nullopt;
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kString:
    case Kind::kRange:
      if (key.is_integral()) return element(runtime, object, key.integer_value());
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<Value> find_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kHost:
      return object.as<Host>().attribute(runtime, name);
    case Kind::kNamespace: {
      const Value* found = object.as<Namespace>().find(runtime, name);
      return found != nullptr ? std::optional<Value>(*found) : std::nullopt;
    }
    default:
      return find_method(runtime, object, name);
  }
}

void fail_undefined(const Value& value) {
  if (value.object() == nullptr) fail("value is undefined");
  fail(value.as<UndefinedInfo>().message);
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer_value() != 0;
    case Kind::kFloat:
      return value.real_value() != 0;
    case Kind::kString:
      return !value.text().empty();  // not by length(), which counts characters
    default: {
      const std::optional<std::size_t> size = length(value);
      return !size || *size != 0;
    }
  }
}

std::optional<std::size_t> length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return count_code_points(value.text());
    case Kind::kList:
    case Kind::kTuple:
      return value.items().size();
    case Kind::kDict:
      return value.dict().entries().size();
    case Kind::kDictView:
      return value.as<DictView>().dict.dict().entries().size();
    case Kind::kRange:
      return value.as<Range>().size;
    case Kind::kHost:
      return value.as<Host>().length();
    default:
      return std::nullopt;
  }
}

Value get_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  if (std::optional<Value> found = find_attribute(runtime, object, name)) return *found;
  const Value key = runtime.string(std::string(name));
  if (std::optional<Value> found = item_or_nothing(runtime, object, key)) return *found;
  return missing_item(runtime, object, key);
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  if (std::optional<Value> found = item_or_nothing(runtime, object, key)) return *found;
  if (key.is(Kind::kString)) {
    if (std::optional<Value> found = find_attribute(runtime, object, key.text())) return *found;
  }
  return missing_item(runtime, object, key);
}

Value call(Runtime& runtime, const Value& callee, const Args& args) {
  if (callee.is(Kind::kUndefined)) fail_undefined(callee);
  if (!callee.is(Kind::kHost)) fail("'" + type_name(callee) + "' object is not callable");
  return callee.as<Host>().call(runtime, args);
}

namespace {

// Clamps the bounds of a slice as Python does; returns the indices in order.
std::vector<std::size_t> slice_indices(Runtime& runtime, std::size_t size, const Value& start_value,
                                       const Value& stop_value, const Value& step_value) {
  const auto count = static_cast<std::int64_t>(size);
  const auto bound = [&](const Value& value, std::int64_t absent, std::int64_t low, std::int64_t high) {
    if (value.is(Kind::kNone)) return absent;
    std::int64_t index = to_integer(value, "slice index");
    if (index < 0) index = index < -count ? low - 1 : index + count;
    return std::clamp(index, low, high);
  };
  const std::int64_t step = step_value.is(Kind::kNone) ? 1 : to_integer(step_value, "slice step");
  if (step == 0) fail("slice step cannot be zero");
  const bool forward = step > 0;
  const std::int64_t low = forward ? 0 : -1;
  const std::int64_t high = forward ? count : count - 1;
  const std::int64_t start = bound(start_value, forward ? 0 : count - 1, low, high);
  const std::int64_t stop = bound(stop_value, forward ? count : -1, low, high);
  std::vector<std::size_t> indices;
  const std::int64_t span = forward ? stop - start : start - stop;
  if (span <= 0) return indices;
  const std::uint64_t stride = forward ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
  const std::uint64_t n = (static_cast<std::uint64_t>(span) - 1) / stride + 1;
  runtime.charge(n / 8 + 1);
  runtime.check_room(n * sizeof(std::size_t));
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t offset = i * stride;
    indices.push_back(static_cast<std::size_t>(forward ? static_cast<std::uint64_t>(start) + offset
                                                       : static_cast<std::uint64_t>(start) - offset));
  }
  return indices;
}

}  // namespace

Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  if (object.is_sequence()) {
    std::vector<Value> items;
    for (const std::size_t i : slice_indices(runtime, object.items().size(), start, stop, step)) {
      items.push_back(object.items()[i]);
    }
    return object.is(Kind::kList) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
  }
  if (object.is(Kind::kString)) {
    const std::string& text = object.text();
    runtime.charge_bytes(text.size());
    const bool ascii = is_ascii(text);
    runtime.check_room(ascii ? text.size() : text.size() * sizeof(char32_t));
    const std::u32string wide = ascii ? std::u32string() : to_code_points(text);
    std::string result;
    for (const std::size_t i : slice_indices(runtime, ascii ? text.size() : wide.size(), start, stop, step)) {
      if (ascii) {
        result += text[i];
      } else {
        append_utf8(wide[i], &result);
      }
    }
    return runtime.string(std::move(result), object.is_markup());
  }
  if (object.is(Kind::kRange)) fail("slices of a range are not supported");
  fail("'" + type_name(object) + "' object cannot be sliced");
}

std::int64_t to_integer(const Value& value, std::string_view what) {
  if (value.is(Kind::kUndefined)) fail_undefined(value);
  if (!value.is_integral()) fail(std::string(what) + " must be an integer, not " + type_name(value));
  return value.integer_value();
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is(Kind::kString)) {
        fail("'in <string>' requires string as left operand, not " + type_name(item));
      }
      return find_text(runtime, container.text(), item.text()) != std::string::npos;
    case Kind::kDict:
      return container.dict().find(runtime, item) != nullptr;
    case Kind::kDictView:
      if (container.as<DictView>().part == DictView::Part::kKeys) {
        return container.as<DictView>().dict.dict().find(runtime, item) != nullptr;
      }
      break;
    default:
      break;
  }
  if (!is_iterable(container)) fail("argument of type '" + type_name(container) + "' is not iterable");
  const std::shared_ptr<Iterator> iterator = iterate(runtime, container);
  Value candidate;
  while (iterator->next(runtime, candidate)) {
    runtime.charge(1);
    if (equals(runtime, candidate, item)) return true;
  }
  return false;
}

std::size_t find_text(Runtime& runtime, std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  runtime.charge(1);
  std::size_t at = from;
  while (at + needle.size() <= text.size()) {
    const std::size_t candidate = text.find(needle[0], at);
    if (candidate == std::string_view::npos) {
      runtime.charge_bytes(text.size() - at);
      break;
    }
    // A failed comparison may have read the whole needle: that is the work a hostile template would ask for.
    runtime.charge((candidate - at) / 64 + needle.size() / 64);
    if (candidate + needle.size() > text.size()) break;
    if (text.compare(candidate, needle.size(), needle) == 0) return candidate;
    at = candidate + 1;
  }
  return std::string_view::npos;
}

std::size_t find_last_text(Runtime& runtime, std::string_view text, std::string_view needle) {
  if (needle.size() > text.size()) return std::string_view::npos;
  if (needle.empty()) return text.size();
  runtime.charge(1);
  std::size_t last = text.size() - needle.size();
  while (true) {
    const std::size_t candidate = text.rfind(needle[0], last);
    if (candidate == std::string_view::npos) {
      runtime.charge_bytes(last);
      return candidate;
    }
    runtime.charge((last - candidate) / 64 + needle.size() / 64);
    if (text.compare(candidate, needle.size(), needle) == 0) return candidate;
    if (candidate == 0) return std::string_view::npos;
    last = candidate - 1;
  }
}

}  // namespace nibble::text::jinja
