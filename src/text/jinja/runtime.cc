#include "text/jinja/runtime.h"

#include <algorithm>

namespace nibble::text::jinja {

Runtime::~Runtime() {
  // Clearing one object may free others, but never one that is kept: no deep recursion, no cycle left.
  for (const auto& object : kept_) object->clear();
}

void Runtime::allocate(std::size_t bytes) {
  check_room(bytes);
  bytes_ += bytes;
}

void Runtime::check_room(std::size_t bytes) const {
  if (bytes > limits_.bytes || bytes_ > limits_.bytes - bytes) {
    fail("the template needs more memory than its limit of " + std::to_string(limits_.bytes) + " bytes");
  }
}

void Runtime::check_room(std::size_t count, std::size_t each) const {
  check_room(each != 0 && count > limits_.bytes / each ? limits_.bytes + 1 : count * each);
}

void Runtime::fail_steps() const {
  fail("the template takes more steps than its limit of " + std::to_string(limits_.steps));
}

Value Runtime::string(std::string text, bool markup) {
  charge_bytes(text.size());
  return Value(Kind::kString, std::make_shared<String>(this, std::move(text), markup));
}

Value Runtime::sequence(Kind kind, std::vector<Value> items) {
  charge(1 + items.size());
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, nesting_of(item));
  if (depth >= kMaxNesting) fail("lists nest deeper than " + std::to_string(kMaxNesting) + " levels");
  return Value(kind, std::make_shared<Sequence>(this, std::move(items), depth + 1));
}

Value Runtime::dict(std::vector<Dict::Entry> entries) {
  charge(1 + entries.size());
  int depth = 0;
  for (const auto& [key, value] : entries) depth = std::max({depth, nesting_of(key), nesting_of(value)});
  if (depth >= kMaxNesting) fail("dicts nest deeper than " + std::to_string(kMaxNesting) + " levels");
  return Value(Kind::kDict, std::make_shared<Dict>(*this, std::move(entries), depth + 1));
}

Value Runtime::undefined(std::string why) {
  return Value(Kind::kUndefined, std::make_shared<UndefinedInfo>(this, std::move(why)));
}

int nesting_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kTuple:
      return value.as<Sequence>().depth;
    case Kind::kDict:
      return value.dict().depth;
    case Kind::kDictView:
      return nesting_of(value.as<DictView>().dict);
    case Kind::kIterator:
      return value.as<Iterator>().depth;
    case Kind::kHost:
      return value.as<Host>().nesting();
    default:
      return 0;
  }
}

const Value* Args::find(std::string_view name) const {
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

namespace {

[[noreturn]] void fail_argument(std::string function, const char* what, const std::string& argument) {
  fail(function.append(what).append(argument).append("'"));
}

}  // namespace

Bound bind(std::string_view function, const Args& args, std::initializer_list<std::string_view> parameters,
           std::size_t required) {
  const std::string name(function);
  if (args.positional.size() > parameters.size()) {
    fail(name + "() takes at most " + std::to_string(parameters.size()) + " arguments (" +
         std::to_string(args.positional.size()) + " given)");
  }
  Bound bound(parameters.size());
  std::copy(args.positional.begin(), args.positional.end(), bound.begin());
  for (const auto& [key, value] : args.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), key);
    if (found == parameters.end()) fail_argument(name, "() got an unexpected keyword argument '", key);
    auto& slot = bound[static_cast<std::size_t>(found - parameters.begin())];
    if (slot) fail_argument(name, "() got multiple values for argument '", key);
    slot = value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!bound[i]) fail(name + "() misses its argument '" + std::string(parameters.begin()[i]) + "'");
  }
  return bound;
}

Value Host::call(Runtime&, const Args&) {
  fail("'" + type() + "' object is not callable");
}

std::optional<Value> Host::attribute(Runtime&, std::string_view) {
  return std::nullopt;
}

}  // namespace nibble::text::jinja
