// What the files of filters share: the two tables, and helpers for arguments.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "text/jinja/library.h"
#include "text/jinja/ops.h"

namespace nibble::text::jinja {

std::span<const NamedFilter> text_filters();
std::span<const NamedFilter> number_filters();
std::span<const NamedFilter> sequence_filters();

// Python's str(value) kept as Markup where the value is one.
Value soft_string(Runtime& runtime, const Value& value);

// item -> item.a.b[0] for the attribute "a.b.0", an integer, or none (the item itself).
using Getter = std::function<Value(const Value&)>;
Getter attribute_getter(Runtime& runtime, const Value& attribute, const Value* default_value = nullptr);
// Lower case for strings, anything else as it is: the keys of sort, unique, min, max and groupby.
Value ignore_case(Runtime& runtime, const Value& value);

inline bool flag(const std::optional<Value>& value, bool absent = false) {
  return value ? truth(*value) : absent;
}

}  // namespace nibble::text::jinja
