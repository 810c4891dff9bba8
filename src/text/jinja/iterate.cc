// The iteration protocol: one Iterator per kind of value that Python can loop over.
#include "text/jinja/ops.h"
#include "text/jinja/unicode.h"

namespace nibble::text::jinja {
namespace {

// Reads item after item of a value that does not change while it is read.
class IndexedIterator final : public Iterator {
 public:
  IndexedIterator(Runtime* runtime, Value source)
      : Iterator(runtime, "iterator", nesting_of(source) + 1), source_(std::move(source)) {}
  void clear() override { source_ = Value(); }

  bool next(Runtime& runtime, Value& value) override {
    switch (source_.kind()) {
      case Kind::kString:
        return next_character(runtime, value);
      case Kind::kList:
      case Kind::kTuple:
        if (at_ >= source_.items().size()) return false;
        value = source_.items()[at_++];
        return true;
      case Kind::kDict:
        if (at_ >= source_.dict().entries().size()) return false;
        value = source_.dict().entries()[at_++].first;
        return true;
      case Kind::kDictView:
        return next_of_view(runtime, source_.as<DictView>(), value);
      case Kind::kRange:
        if (at_ >= source_.as<Range>().size) return false;
        value = Value::integer(source_.as<Range>().at(at_++));
        return true;
      default:
        return false;
    }
  }

 private:
  bool next_character(Runtime& runtime, Value& value) {
    const std::string& text = source_.text();
    if (at_ >= text.size()) return false;
    const std::size_t start = at_;
    next_code_point(text, at_);
    value = runtime.string(text.substr(start, at_ - start), source_.is_markup());
    return true;
  }
  bool next_of_view(Runtime& runtime, const DictView& view, Value& value) {
    const auto& entries = view.dict.dict().entries();
    if (at_ >= entries.size()) return false;
    const auto& [key, item] = entries[at_++];
    value = view.part == DictView::Part::kKeys     ? key
            : view.part == DictView::Part::kValues ? item
                                                   : runtime.tuple({key, item});
    return true;
  }

  Value source_;
  std::size_t at_ = 0;
};

class ComputedIterator final : public Iterator {
 public:
  ComputedIterator(Runtime* runtime, std::string type_text, int nesting, NextItem next_item)
      : Iterator(runtime, std::move(type_text), nesting), next_(std::move(next_item)) {}
  void clear() override { next_ = nullptr; }
  bool next(Runtime& runtime, Value& value) override {
    if (next_ == nullptr) return false;
    const RecursionGuard guard(runtime);  // an iterator may read another one, and so on
    runtime.charge(1);
    if (next_(runtime, value)) return true;
    next_ = nullptr;
    return false;
  }

 private:
  NextItem next_;
};

}  // namespace

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kNamespace:
      return false;
    case Kind::kHost:
      return value.as<Host>().iterate() != nullptr;
    default:
      return true;
  }
}

std::shared_ptr<Iterator> iterate(Runtime& runtime, const Value& value) {
  if (value.is(Kind::kIterator)) return std::static_pointer_cast<Iterator>(value.object());
  if (!is_iterable(value)) fail("'" + type_name(value) + "' object is not iterable");
  if (value.is(Kind::kHost)) return value.as<Host>().iterate();
  return std::make_shared<IndexedIterator>(&runtime, value);
}

std::vector<Value> to_vector(Runtime& runtime, const Value& value) {
  if (value.is_sequence()) {
    runtime.charge(value.items().size());
    return value.items();
  }
  const std::shared_ptr<Iterator> iterator = iterate(runtime, value);
  std::vector<Value> items;
  Value item;
  while (iterator->next(runtime, item)) {
    runtime.charge(1);
    runtime.check_room(items.size() * sizeof(Value));
    items.push_back(std::move(item));
  }
  return items;
}

Value make_iterator(Runtime& runtime, std::string type, const Value& source, NextItem next) {
  const int depth = nesting_of(source) + 1;
  if (depth >= Runtime::kMaxNesting)
    fail("iterators nest deeper than " + std::to_string(Runtime::kMaxNesting) + " levels");
  return Value(Kind::kIterator, runtime.make_kept<ComputedIterator>(std::move(type), depth, std::move(next)));
}

}  // namespace nibble::text::jinja
