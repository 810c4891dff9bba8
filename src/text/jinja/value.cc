#include "text/jinja/value.h"

#include <cmath>
#include <cstring>

#include "text/jinja/runtime.h"

namespace nibble::text::jinja {

Object::Object(Runtime* runtime, std::size_t bytes) : runtime_(runtime), bytes_(bytes) {
  if (runtime_ != nullptr) runtime_->allocate(bytes_);
}

Object::~Object() {
  if (runtime_ != nullptr) runtime_->release(bytes_);
}

const std::string& Value::text() const {
  return as<String>().text;
}

bool Value::is_markup() const {
  return is(Kind::kString) && as<String>().markup;
}

const std::vector<Value>& Value::items() const {
  return as<Sequence>().items;
}

const Dict& Value::dict() const {
  return as<Dict>();
}

Dict::Dict(Runtime& runtime, std::vector<Entry> entries, int nesting)
    : Object(&runtime, sizeof *this + entries.size() * kBytesPerEntry), depth(nesting) {
  entries_.reserve(entries.size());
  for (Entry& entry : entries) {
    const bool is_text = entry.first.is(Kind::kString);
    Index& index = is_text ? strings_ : others_;
    const auto [slot, added] =
        index.emplace(is_text ? entry.first.text() : hash_key(runtime, entry.first), entries_.size());
    if (added) {
      entries_.push_back(std::move(entry));
    } else {
      entries_[slot->second].second = std::move(entry.second);
    }
  }
}

const Value* Dict::find(Runtime& runtime, const Value& key) const {
  if (key.is(Kind::kString)) return find(runtime, std::string_view(key.text()));
  const auto found = others_.find(hash_key(runtime, key));
  return found == others_.end() ? nullptr : &entries_[found->second].second;
}

const Value* Dict::find(Runtime& runtime, std::string_view key) const {
  runtime.charge_bytes(key.size());
  const auto found = strings_.find(key);
  return found == strings_.end() ? nullptr : &entries_[found->second].second;
}

Range::Range(Runtime* runtime, std::int64_t first, std::int64_t end, std::int64_t increment)
    : Object(runtime, sizeof *this), start(first), stop(end), step(increment), size(0) {
  const auto distance = [](std::int64_t from, std::int64_t to) {
    return static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from);
  };
  const std::uint64_t stride = step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
  if (step > 0 && start < stop) size = (distance(start, stop) - 1) / stride + 1;
  if (step < 0 && start > stop) size = (distance(stop, start) - 1) / stride + 1;
}

const Value* Namespace::find(Runtime& runtime, std::string_view name) const {
  runtime.charge(1 + attributes.size() / 8);
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::set(Runtime& runtime, std::string_view name, Value value) {
  runtime.charge(1 + attributes.size() / 8);
  for (auto& [key, old] : attributes) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(name, std::move(value));
}

std::string hash_key(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::kString:
      runtime.charge_bytes(value.text().size());
      return "s" + value.text();
    case Kind::kBool:
    case Kind::kInt:
      return "i" + std::to_string(value.integer_value());
    case Kind::kFloat: {
      const double d = value.real_value();
      if (d == std::floor(d) && std::fabs(d) < 9e18) return "i" + std::to_string(static_cast<std::int64_t>(d));
      std::string key = "f01234567";
      std::memcpy(key.data() + 1, &d, sizeof d);
      return key;
    }
    case Kind::kTuple: {
      std::string key = "(";
      for (const Value& item : value.items()) {
        const std::string part = hash_key(runtime, item);
        runtime.charge_bytes(part.size());
        runtime.check_room(key.size() + part.size());
        key += std::to_string(part.size()) + ":" + part;
      }
      return key;
    }
    case Kind::kNone:
      return "n";
    case Kind::kUndefined:
      return "u";
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
      fail("unhashable type: '" + type_name(value) + "'");
    case Kind::kRange:
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kHost:
      break;
  }
  const void* address = value.object().get();
  std::string key = "p01234567";
  std::memcpy(key.data() + 1, &address, sizeof address);
  return key;
}

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.is_markup() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kDictView: {
      const auto part = value.as<DictView>().part;
      return part == DictView::Part::kKeys     ? "dict_keys"
             : part == DictView::Part::kValues ? "dict_values"
                                               : "dict_items";
    }
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return value.as<Iterator>().type;
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kHost:
      return value.as<Host>().type();
  }
  return "object";
}

}  // namespace nibble::text::jinja
