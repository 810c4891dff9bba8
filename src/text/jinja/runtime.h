// What one rendering owns: its budget of steps and memory, the objects that may form cycles, and makers of values.
#pragma once

#include <cstddef>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/error.h"
#include "text/jinja/value.h"

namespace nibble::text::jinja {

class Runtime {
 public:
  struct Limits {
    std::size_t steps = 20'000'000;
    std::size_t bytes = std::size_t{128} << 20;
  };
  static constexpr int kMaxNesting = 200;     // of lists and dicts in each other
  static constexpr int kMaxRecursion = 1000;  // of the interpreter's own functions

  Runtime(const Limits& limits, const std::tm& now) : limits_(limits), now_(now) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Every unit of work passes here: a step is about one evaluated node, or 64 bytes copied or compared.
  void charge(std::size_t steps) {
    if (steps > limits_.steps - steps_) fail_steps();
    steps_ += steps;
  }
  void charge_bytes(std::size_t bytes) { charge(1 + bytes / 64); }

  void allocate(std::size_t bytes);
  void release(std::size_t bytes) { bytes_ -= bytes; }
  void check_room(std::size_t bytes) const;  // throws when a value of so many bytes would not fit
  void check_room(std::size_t count, std::size_t each) const;

  Value string(std::string text, bool markup = false);
  Value list(std::vector<Value> items) { return sequence(Kind::kList, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Kind::kTuple, std::move(items)); }
  Value dict(std::vector<Dict::Entry> entries);
  Value undefined(std::string why);

  // Makes an object that may refer back to itself: kept until the render ends, then cleared.
  template <typename T, typename... Arguments>
  std::shared_ptr<T> make_kept(Arguments&&... arguments) {
    auto object = std::make_shared<T>(this, std::forward<Arguments>(arguments)...);
    kept_.push_back(object);
    return object;
  }
  void keep(std::shared_ptr<Object> object) { kept_.push_back(std::move(object)); }

  const std::tm& now() const { return now_; }

  int line = 0;       // of what is being evaluated, for messages
  int recursion = 0;  // see RecursionGuard

 private:
  Value sequence(Kind kind, std::vector<Value> items);
  [[noreturn]] void fail_steps() const;

  const Limits limits_;
  const std::tm now_;
  std::size_t steps_ = 0;
  std::size_t bytes_ = 0;
  std::vector<std::shared_ptr<Object>> kept_;
};

class RecursionGuard {
 public:
  explicit RecursionGuard(Runtime& runtime) : runtime_(runtime) {
    if (runtime_.recursion >= Runtime::kMaxRecursion)
      fail("recursion is too deep (" + std::to_string(Runtime::kMaxRecursion) + " levels)");
    ++runtime_.recursion;
  }
  ~RecursionGuard() { --runtime_.recursion; }
  RecursionGuard(const RecursionGuard&) = delete;
  RecursionGuard& operator=(const RecursionGuard&) = delete;

 private:
  Runtime& runtime_;
};

// Text that grows piece by piece. Its bytes count against the memory limit before each piece is copied.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& runtime) : runtime_(runtime) {}
  ~TextBuilder() { runtime_.release(counted_); }
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;

  TextBuilder& operator<<(std::string_view piece) {
    runtime_.charge_bytes(piece.size());
    runtime_.allocate(piece.size());
    counted_ += piece.size();
    text_ += piece;
    return *this;
  }
  TextBuilder& operator<<(char c) { return *this << std::string_view(&c, 1); }
  bool empty() const { return text_.empty(); }
  std::string take() { return std::move(text_); }

 private:
  Runtime& runtime_;
  std::string text_;
  std::size_t counted_ = 0;
};

// Evaluated arguments of a call.
struct Args {
  std::vector<Value> positional = {};
  std::vector<std::pair<std::string, Value>> named = {};

  const Value* find(std::string_view name) const;
  bool empty() const { return positional.empty() && named.empty(); }
};

// Arguments matched with parameter names, as Python would; absent ones are empty. Throws a TypeError-like message
// when there are too many, an unknown name, or fewer than `required`.
using Bound = std::vector<std::optional<Value>>;
Bound bind(std::string_view function, const Args& args, std::initializer_list<std::string_view> parameters,
           std::size_t required = 0);

class Iterator : public Object {
 public:
  Iterator(Runtime* runtime, std::string type_text, int nesting)
      : Object(runtime, sizeof(Iterator) + 64), type(std::move(type_text)), depth(nesting) {}
  virtual bool next(Runtime& runtime, Value& value) = 0;  // false at the end, and ever after
  const std::string type;
  const int depth;
};

// An object of the interpreter with behaviour: a function, a macro, a bound method, the loop variable.
class Host : public Object {
 public:
  using Object::Object;
  virtual std::string type() const = 0;
  virtual bool is_callable() const { return false; }
  virtual Value call(Runtime& runtime, const Args& args);
  virtual std::optional<Value> attribute(Runtime& runtime, std::string_view name);
  virtual std::optional<std::size_t> length() { return std::nullopt; }
  virtual std::shared_ptr<Iterator> iterate() { return nullptr; }  // null: not iterable
  virtual int nesting() const { return 0; }                        // of what it holds and does not clear() by itself
  virtual std::string repr(Runtime&) { return {}; }                // empty: Python's text would hold an address
};

class Function final : public Host {
 public:
  using Body = std::function<Value(Runtime&, const Args&)>;
  // `nesting` is that of the values that the body holds.
  Function(Runtime* runtime, std::string type_text, Body body_function, int nesting = 0)
      : Host(runtime, sizeof *this), type_(std::move(type_text)), body_(std::move(body_function)), nesting_(nesting) {}
  std::string type() const override { return type_; }
  bool is_callable() const override { return body_ != nullptr; }
  Value call(Runtime& runtime, const Args& args) override { return body_(runtime, args); }
  int nesting() const override { return nesting_; }

 private:
  std::string type_;
  Body body_;
  int nesting_;
};

// How deep lists, dicts and iterators nest inside the value.
int nesting_of(const Value& value);

}  // namespace nibble::text::jinja
