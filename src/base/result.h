// Failure of outside data as a value: what was found, what was expected, where, and what to do about it.
// A breach of nibble's own contract is not an Error but a CHECK (base/check.h).
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace nibble {

// Every field but `message` may be empty. `message` is one line that stands alone; `hint` says what to do.
struct Error {
  std::string message;
  std::string file = {};
  std::string tensor = {};
  std::string key = {};  // of metadata, or of a JSON file; an error is about a tensor or about a key
  std::string found = {};
  std::string expected = {};
  std::string hint = {};

  const std::string& subject() const { return key.empty() ? tensor : key; }
  // "message" first, then one indented line per non-empty field.
  std::string to_string() const;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit on purpose
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return checked(); }
  const T& value() const& { return const_cast<Result*>(this)->checked(); }
  T&& value() && { return std::move(checked()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &checked(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    NIBBLE_CHECK(!ok(), "error() of a Result that holds a value");
    return std::get<1>(state_);
  }
  Error&& error() && {
    NIBBLE_CHECK(!ok(), "error() of a Result that holds a value");
    return std::get<1>(std::move(state_));
  }

 private:
  T& checked() {
    NIBBLE_CHECK(ok(), "value() of a Result that holds an error");
    return std::get<0>(state_);
  }
  std::variant<T, Error> state_;
};

// A Result without a value. `return {};` or `return ok_status();` is success.
using Status = Result<std::monostate>;
inline Status ok_status() {
  return std::monostate{};
}

}  // namespace nibble

// Leaves the enclosing function with the error of a Status or Result expression.
#define NIBBLE_TRY(expression)                                        \
  do {                                                                \
    auto nibble_status = (expression);                                \
    if (!nibble_status.ok()) return std::move(nibble_status).error(); \
  } while (false)

// NIBBLE_ASSIGN(auto x, f()): x = value of f(), or leaves with its error.
#define NIBBLE_ASSIGN(declaration, expression) \
  NIBBLE_ASSIGN_IMPL(NIBBLE_CONCAT(nibble_result_, __LINE__), declaration, expression)
#define NIBBLE_ASSIGN_IMPL(result, declaration, expression) \
  auto result = (expression);                               \
  if (!result.ok()) return std::move(result).error();       \
  declaration = std::move(result).value()
#define NIBBLE_CONCAT(a, b) NIBBLE_CONCAT_IMPL(a, b)
#define NIBBLE_CONCAT_IMPL(a, b) a##b
