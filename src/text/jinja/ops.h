// Python's operators and protocols on values. All of them throw TemplateError where Python would raise.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace nibble::text::jinja {

bool truth(const Value& value);
bool equals(Runtime& runtime, const Value& a, const Value& b);
bool less(Runtime& runtime, const Value& a, const Value& b);  // a < b, of one ordered type
bool contains(Runtime& runtime, const Value& container, const Value& item);
bool compare(Runtime& runtime, CompareOp op, const Value& a, const Value& b);
Value binary(Runtime& runtime, BinaryOp op, const Value& a, const Value& b);
Value unary(Runtime& runtime, char op, const Value& operand);

// object.name: the attribute first, then the item. object[key]: the item first, then the attribute.
Value get_attribute(Runtime& runtime, const Value& object, std::string_view name);
Value get_item(Runtime& runtime, const Value& object, const Value& key);
// The attribute alone: methods, fields of namespaces and of the loop variable.
std::optional<Value> find_attribute(Runtime& runtime, const Value& object, std::string_view name);
// object[start:stop:step]; an absent bound is a None value.
Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step);

Value call(Runtime& runtime, const Value& callee, const Args& args);

// len(); nothing for values without a length.
std::optional<std::size_t> length(const Value& value);
bool is_iterable(const Value& value);
// A fresh iterator, or the iterator itself; throws for what Python cannot iterate.
std::shared_ptr<Iterator> iterate(Runtime& runtime, const Value& value);
std::vector<Value> to_vector(Runtime& runtime, const Value& value);
// Value of an iterator that computes its items when asked. `source` is what it reads, for the limit on nesting.
using NextItem = std::function<bool(Runtime&, Value&)>;
Value make_iterator(Runtime& runtime, std::string type, const Value& source, NextItem next);

// An integer argument of a function; throws naming `what` when the value is none.
std::int64_t to_integer(const Value& value, std::string_view what);
// Throws the error that Python raises on any use of an undefined value.
[[noreturn]] void fail_undefined(const Value& value);

// Position of `needle` at or after `from`, charging for the work done; npos when absent.
std::size_t find_text(Runtime& runtime, std::string_view text, std::string_view needle, std::size_t from = 0);
std::size_t find_last_text(Runtime& runtime, std::string_view text, std::string_view needle);

// Methods of str, dict, list and tuple (methods.cc): a callable, or nothing when Python has no such method.
std::optional<Value> find_method(Runtime& runtime, const Value& object, std::string_view name);

}  // namespace nibble::text::jinja
