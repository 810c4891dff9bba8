#include "text/jinja/library.h"

#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/print.h"

namespace nibble::text::jinja {

FilterFunction find_filter(std::string_view name) {
  for (const auto filters : {text_filters(), number_filters(), sequence_filters()}) {
    for (const NamedFilter& filter : filters) {
      if (filter.name == name) return filter.function;
    }
  }
  return nullptr;
}

Value apply_filter(Runtime& runtime, std::string_view name, const Value& input, const Args& args) {
  const FilterFunction filter = find_filter(name);
  if (filter == nullptr) fail("no filter named '" + std::string(name) + "'");
  runtime.charge(1);
  return filter(runtime, input, args);
}

bool apply_test(Runtime& runtime, std::string_view name, const Value& input, const Args& args) {
  const TestFunction test = find_test(name);
  if (test == nullptr) fail("no test named '" + std::string(name) + "'");
  runtime.charge(1);
  return test(runtime, input, args);
}

namespace {

constexpr std::size_t kMaxRange = 100'000;  // jinja2's sandbox has the same limit

Value global_range(Runtime& runtime, const Args& args) {
  if (!args.named.empty()) fail("range() takes no keyword arguments");
  const Bound bound = bind("range", args, {"start", "stop", "step"}, 1);
  const std::int64_t first = to_integer(*bound[0], "range argument");
  const std::int64_t step = bound[2] ? to_integer(*bound[2], "range argument") : 1;
  if (step == 0) fail("range() arg 3 must not be zero");
  const std::int64_t start = bound[1] ? first : 0;
  const std::int64_t stop = bound[1] ? to_integer(*bound[1], "range argument") : first;
  auto range = std::make_shared<Range>(&runtime, start, stop, step);
  if (range->size > kMaxRange) fail("a range is larger than " + std::to_string(kMaxRange) + " items");
  return Value(Kind::kRange, std::move(range));
}

// Arguments of dict() and namespace(): a mapping or pairs, then keywords.
std::vector<Dict::Entry> collect_entries(Runtime& runtime, const char* function, const Args& args) {
  if (args.positional.size() > 1) fail(std::string(function) + "() takes at most one positional argument");
  std::vector<Dict::Entry> entries;
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.is(Kind::kDict)) {
      entries = source.dict().entries();
    } else {
      for (const Value& pair : to_vector(runtime, source)) {
        const std::vector<Value> parts = to_vector(runtime, pair);
        if (parts.size() != 2) fail(std::string(function) + "() needs pairs of key and value");
        entries.emplace_back(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) entries.emplace_back(runtime.string(name), value);
  return entries;
}

Value global_dict(Runtime& runtime, const Args& args) {
  return runtime.dict(collect_entries(runtime, "dict", args));
}

Value global_namespace(Runtime& runtime, const Args& args) {
  const Value entries = runtime.dict(collect_entries(runtime, "namespace", args));
  auto space = runtime.make_kept<Namespace>();
  for (const auto& [name, value] : entries.dict().entries()) {
    if (!name.is(Kind::kString)) fail("namespace() needs names as keys");
    space->set(runtime, name.text(), value);
  }
  return Value(Kind::kNamespace, std::move(space));
}

// cycler(a, b, ...): .next(), .current, .reset().
class Cycler final : public Host {
 public:
  Cycler(Runtime* runtime, std::vector<Value> items) : Host(runtime, sizeof *this), items_(std::move(items)) {}
  std::string type() const override { return "Cycler"; }
  void clear() override { items_.clear(); }
  std::optional<Value> attribute(Runtime& runtime, std::string_view name) override {
    if (name == "current") return items_[at_];
    if (name != "next" && name != "reset") return std::nullopt;
    auto method = runtime.make_kept<Function>("method", [this, is_next = name == "next"](Runtime&, const Args&) {
      Value value = is_next ? items_[at_] : Value::none();
      at_ = is_next ? (at_ + 1) % items_.size() : 0;
      return value;
    });
    return Value(Kind::kHost, std::move(method));
  }

 private:
  std::vector<Value> items_;
  std::size_t at_ = 0;
};

Value global_cycler(Runtime& runtime, const Args& args) {
  if (args.positional.empty()) fail("at least one item has to be provided");
  return Value(Kind::kHost, runtime.make_kept<Cycler>(args.positional));
}

// joiner(separator): a function that returns nothing the first time, and the separator ever after.
Value global_joiner(Runtime& runtime, const Args& args) {
  const Bound bound = bind("joiner", args, {"sep"});
  const Value separator = bound[0] ? *bound[0] : runtime.string(", ");
  const auto body = [separator, used = false](Runtime& r, const Args&) mutable {
    return std::exchange(used, true) ? separator : r.string("");
  };
  return Value(Kind::kHost, runtime.make_kept<Function>("Joiner", body));
}

Value global_raise_exception(Runtime& runtime, const Args& args) {
  const Bound bound = bind("raise_exception", args, {"message"}, 1);
  throw TemplateError{to_str(runtime, *bound[0]), 0, true};
}

Value global_strftime_now(Runtime& runtime, const Args& args) {
  const Bound bound = bind("strftime_now", args, {"format"}, 1);
  if (!bound[0]->is(Kind::kString)) fail("strftime_now: a string is needed, not " + type_name(*bound[0]));
  return runtime.string(format_time(bound[0]->text(), runtime.now()));
}

Value global_lipsum(Runtime&, const Args&) {
  fail("lipsum() is not supported: its text is random");
}

}  // namespace

std::vector<std::pair<std::string, Value>> make_globals(Runtime& runtime) {
  std::vector<std::pair<std::string, Value>> globals;
  const auto add = [&](const char* name, Value (*function)(Runtime&, const Args&)) {
    globals.emplace_back(name, Value(Kind::kHost, std::make_shared<Function>(&runtime, "function", function)));
  };
  add("range", global_range);
  add("dict", global_dict);
  add("namespace", global_namespace);
  add("cycler", global_cycler);
  add("joiner", global_joiner);
  add("lipsum", global_lipsum);
  add("raise_exception", global_raise_exception);
  add("strftime_now", global_strftime_now);
  return globals;
}

}  // namespace nibble::text::jinja
