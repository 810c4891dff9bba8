// The values of the template language, with Python's types. Strings, lists, tuples and dicts never change once made
// (the sandbox that chat templates run in forbids it), so they are shared freely and cannot form cycles. What can
// change or refer back (namespaces, macros, iterators) is an Object that the Runtime keeps until the render ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace nibble::text::jinja {

class Runtime;

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kDictView,  // what dict.keys(), .values() and .items() return
  kRange,
  kIterator,   // what map, select, reverse, ... return: may be read once
  kNamespace,  // the only thing that {% set %} can write into
  kHost,       // functions, macros, bound methods, loop, cycler, joiner
};

// Base of all that lives on the heap. Counts its bytes against the runtime's limit; `runtime` is null for the
// literals of a parsed template.
class Object {
 public:
  Object(Runtime* runtime, std::size_t bytes);
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  // Drops every reference to other values; called when the render ends, which breaks cycles.
  virtual void clear() {}

 private:
  Runtime* runtime_;
  std::size_t bytes_;
};

class Value {
 public:
  Value() = default;  // an undefined value without a name
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}

  static Value none() { return Value(Kind::kNone, nullptr); }
  static Value boolean(bool b) {
    Value v(Kind::kBool, nullptr);
    v.integer_ = b ? 1 : 0;
    return v;
  }
  static Value integer(std::int64_t i) {
    Value v(Kind::kInt, nullptr);
    v.integer_ = i;
    return v;
  }
  static Value real(double d) {
    Value v(Kind::kFloat, nullptr);
    v.real_ = d;
    return v;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_integral() const { return is(Kind::kInt) || is(Kind::kBool); }  // Python's bool is an int
  bool is_number() const { return is_integral() || is(Kind::kFloat); }
  bool is_sequence() const { return is(Kind::kList) || is(Kind::kTuple); }

  std::int64_t integer_value() const { return integer_; }
  double real_value() const { return is(Kind::kFloat) ? real_ : static_cast<double>(integer_); }

  // Valid for the kinds named.
  const std::string& text() const;          // kString
  bool is_markup() const;                   // kString: marked safe, so that '+' escapes what it is added to
  const std::vector<Value>& items() const;  // kList, kTuple
  const class Dict& dict() const;           // kDict
  const std::shared_ptr<Object>& object() const { return object_; }
  template <typename T>
  T& as() const {
    return static_cast<T&>(*object_);
  }

 private:
  Kind kind_ = Kind::kUndefined;
  union {
    std::int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<Object> object_;
};

// Why a value is undefined, for the message when it is used.
class UndefinedInfo final : public Object {
 public:
  UndefinedInfo(Runtime* runtime, std::string why)
      : Object(runtime, sizeof *this + why.size()), message(std::move(why)) {}
  const std::string message;
};

class String final : public Object {
 public:
  String(Runtime* runtime, std::string value, bool is_markup_text)
      : Object(runtime, sizeof *this + value.size()), text(std::move(value)), markup(is_markup_text) {}
  const std::string text;
  const bool markup;
};

class Sequence final : public Object {
 public:
  Sequence(Runtime* runtime, std::vector<Value> values, int nesting)
      : Object(runtime, sizeof *this + values.size() * sizeof(Value)), items(std::move(values)), depth(nesting) {}
  const std::vector<Value> items;
  const int depth;        // 1 + the depth of the deepest item
  bool is_group = false;  // a pair of groupby: its items are also called grouper and list
};

// A Python dict: insertion order, keys equal across int, float and bool.
class Dict final : public Object {
 public:
  using Entry = std::pair<Value, Value>;
  static constexpr std::size_t kBytesPerEntry = sizeof(Entry) + 64;

  // Later entries with an equal key replace the value of the earlier one. Throws on an unhashable key.
  Dict(Runtime& runtime, std::vector<Entry> entries, int nesting);

  const std::vector<Entry>& entries() const { return entries_; }
  const Value* find(Runtime& runtime, const Value& key) const;  // throws on an unhashable key
  const Value* find(Runtime& runtime, std::string_view key) const;
  const int depth;

 private:
  std::vector<Entry> entries_;
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Index = std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>>;
  Index strings_;  // string keys
  Index others_;   // by hash_key()
};

class DictView final : public Object {
 public:
  enum class Part : std::uint8_t { kKeys, kValues, kItems };
  DictView(Runtime* runtime, Value dict_value, Part which)
      : Object(runtime, sizeof *this), dict(std::move(dict_value)), part(which) {}
  const Value dict;
  const Part part;
};

class Range final : public Object {
 public:
  Range(Runtime* runtime, std::int64_t first, std::int64_t end, std::int64_t increment);
  const std::int64_t start, stop, step;
  std::size_t size;
  // Item i < size. It fits 64 bits, what is added to `start` need not: hence the unsigned arithmetic.
  std::int64_t at(std::size_t i) const {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(start) + i * static_cast<std::uint64_t>(step));
  }
};

class Namespace final : public Object {
 public:
  explicit Namespace(Runtime* runtime) : Object(runtime, sizeof *this) {}
  void clear() override { attributes.clear(); }
  const Value* find(Runtime& runtime, std::string_view name) const;
  void set(Runtime& runtime, std::string_view name, Value value);
  std::vector<std::pair<std::string, Value>> attributes;  // in order of first assignment
};

// One encoding per class of equal hashable values; throws on lists and dicts, which Python does not hash. Tuples that
// share parts can be exponentially larger than their memory: the work is charged.
std::string hash_key(Runtime& runtime, const Value& value);

// Python's name of the type, for messages and for type tests.
std::string type_name(const Value& value);

}  // namespace nibble::text::jinja
