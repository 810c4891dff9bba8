// Filters over lists, dicts and other things to iterate.
#include <algorithm>
#include <unordered_set>

#include "text/jinja/filters.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace nibble::text::jinja {

Getter attribute_getter(Runtime& runtime, const Value& attribute, const Value* default_value) {
  std::vector<Value> parts;
  if (attribute.is(Kind::kString)) {
    for (const std::string& part : split(runtime, attribute.text(), ".", -1, false)) {
      const bool digits =
          !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
      parts.push_back(digits ? Value::integer(std::stoll(part)) : runtime.string(part));
    }
  } else if (!attribute.is(Kind::kNone)) {
    parts.push_back(attribute);
  }
  const std::optional<Value> fallback = default_value ? std::optional<Value>(*default_value) : std::nullopt;
  return [&runtime, parts, fallback](const Value& item) {
    Value value = item;
    for (const Value& part : parts) {
      value = get_item(runtime, value, part);
      if (fallback && value.is(Kind::kUndefined)) value = *fallback;
    }
    return value;
  };
}

Value ignore_case(Runtime& runtime, const Value& value) {
  return value.is(Kind::kString) ? runtime.string(to_lower(value.text())) : value;
}

namespace {

// The items of a filter's input, which is not looked at before the first is asked for: until then it may be anything.
class LazyInput {
 public:
  explicit LazyInput(Value input) : input_(std::move(input)) {}
  bool next(Runtime& runtime, Value& value) {
    if (source_ == nullptr) source_ = iterate(runtime, input_);
    return source_->next(runtime, value);
  }

 private:
  Value input_;
  std::shared_ptr<Iterator> source_;
};

Getter key_getter(Runtime& runtime, const std::optional<Value>& attribute, bool case_sensitive) {
  Getter getter = attribute_getter(runtime, attribute.value_or(Value::none()));
  if (case_sensitive) return getter;
  return [&runtime, getter](const Value& item) { return ignore_case(runtime, getter(item)); };
}

// --- Taking apart and putting together ------------------------------------------------------------------------------

Value filter_list(Runtime& runtime, const Value& input, const Args& args) {
  bind("list", args, {});
  return runtime.list(to_vector(runtime, input));
}

Value filter_join(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound = bind("join", args, {"d", "attribute"});
  const std::string separator = bound[0] ? to_str(runtime, *bound[0]) : "";
  const Getter getter = attribute_getter(runtime, bound[1].value_or(Value::none()));
  TextBuilder out(runtime);
  bool first = true;
  for (const Value& item : to_vector(runtime, input)) {
    if (!first) out << separator;
    first = false;
    out << to_str(runtime, getter(item));
  }
  return runtime.string(out.take());
}

Value filter_first(Runtime& runtime, const Value& input, const Args& args) {
  bind("first", args, {});
  Value value;
  if (iterate(runtime, input)->next(runtime, value)) return value;
  return runtime.undefined("No first item, sequence was empty.");
}

bool is_reversible(const Value& value) {
  return is_iterable(value) && !value.is(Kind::kIterator) && !value.is(Kind::kHost) && !value.is(Kind::kUndefined);
}

Value filter_last(Runtime& runtime, const Value& input, const Args& args) {
  bind("last", args, {});
  if (input.is(Kind::kUndefined)) return runtime.undefined("No last item, sequence was empty.");
  if (!is_reversible(input)) fail("'" + type_name(input) + "' object is not reversible");
  if (!truth(input)) return runtime.undefined("No last item, sequence was empty.");
  if (input.is_sequence()) return input.items().back();
  if (input.is(Kind::kString) || input.is(Kind::kRange)) return get_item(runtime, input, Value::integer(-1));
  return to_vector(runtime, input).back();
}

Value filter_reverse(Runtime& runtime, const Value& input, const Args& args) {
  bind("reverse", args, {});
  const Value none = Value::none();
  if (input.is(Kind::kString)) return get_slice(runtime, input, none, none, Value::integer(-1));
  std::vector<Value> items = to_vector(runtime, input);
  std::reverse(items.begin(), items.end());
  if (!is_reversible(input)) return runtime.list(std::move(items));
  const Value list = runtime.list(std::move(items));
  return make_iterator(
      runtime, type_name(input) + "_reverseiterator", list,
      [iterator = iterate(runtime, list)](Runtime& r, Value& value) { return iterator->next(r, value); });
}

Value filter_batch(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound = bind("batch", args, {"linecount", "fill_with"}, 1);
  const std::int64_t count = to_integer(*bound[0], "linecount");
  const Value fill = bound[1].value_or(Value::none());
  return make_iterator(runtime, "generator", input,
                       [source = LazyInput(input), count, fill, done = false](Runtime& r, Value& value) mutable {
                         std::vector<Value> items;
                         Value item;
                         // A count below one never equals the number collected, so that all items end up in one batch.
                         while (!done && (count < 1 || static_cast<std::int64_t>(items.size()) < count)) {
                           r.charge(1);
                           if (source.next(r, item)) {
                             items.push_back(item);
                           } else {
                             done = true;
                           }
                         }
                         if (items.empty()) return false;
                         if (!fill.is(Kind::kNone)) {
                           r.check_room(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)), sizeof(Value));
                           while (static_cast<std::int64_t>(items.size()) < count) items.push_back(fill);
                         }
                         value = r.list(std::move(items));
                         return true;
                       });
}

Value filter_slice(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound = bind("slice", args, {"slices", "fill_with"}, 1);
  const std::int64_t slices = to_integer(*bound[0], "slices");
  const Value fill = bound[1].value_or(Value::none());
  const std::vector<Value> items = to_vector(runtime, input);
  if (slices == 0) fail("integer division or modulo by zero");
  std::vector<Value> result;
  const auto count = static_cast<std::int64_t>(items.size());
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < slices; ++i) {
    const bool has_extra = i < count % slices;
    const std::int64_t size = count / slices + (has_extra ? 1 : 0);
    std::vector<Value> part(items.begin() + at, items.begin() + at + size);
    at += size;
    if (!fill.is(Kind::kNone) && !has_extra) part.push_back(fill);
    runtime.check_room(result.size() * sizeof(Value));
    result.push_back(runtime.list(std::move(part)));
  }
  const Value list = runtime.list(std::move(result));
  return make_iterator(runtime, "generator", list, [iterator = iterate(runtime, list)](Runtime& r, Value& value) {
    return iterator->next(r, value);
  });
}

// --- Mapping and selecting ------------------------------------------------------------------------------------------

Value filter_map(Runtime& runtime, const Value& input, const Args& args) {
  std::function<Value(Runtime&, const Value&)> convert;
  const Value* attribute = args.find("attribute");
  if (args.positional.empty() && attribute != nullptr) {
    for (const auto& [name, value] : args.named) {
      if (name != "attribute" && name != "default") fail("map: unexpected keyword argument '" + name + "'");
    }
    const Value* fallback = args.find("default");
    const bool has_fallback = fallback != nullptr && !fallback->is(Kind::kNone);
    const Getter getter = attribute_getter(runtime, *attribute, has_fallback ? fallback : nullptr);
    convert = [getter](Runtime&, const Value& item) { return getter(item); };
  } else {
    if (args.positional.empty()) fail("map requires a filter argument");
    if (!args.positional[0].is(Kind::kString)) fail("map: the name of a filter is needed");
    const std::string name = args.positional[0].text();
    Args rest = args;
    rest.positional.erase(rest.positional.begin());
    convert = [name, rest](Runtime& r, const Value& item) { return apply_filter(r, name, item, rest); };
  }
  if (!truth(input)) return make_iterator(runtime, "generator", input, [](Runtime&, Value&) { return false; });
  return make_iterator(runtime, "generator", input,
                       [source = LazyInput(input), convert](Runtime& r, Value& value) mutable {
                         Value item;
                         if (!source.next(r, item)) return false;
                         value = convert(r, item);
                         return true;
                       });
}

template <bool kKeep, bool kByAttribute>
Value filter_select(Runtime& runtime, const Value& input, const Args& args) {
  if (!truth(input)) return make_iterator(runtime, "generator", input, [](Runtime&, Value&) { return false; });
  Args rest = args;
  Getter getter = [](const Value& item) { return item; };
  if (kByAttribute) {
    if (rest.positional.empty()) fail("missing parameter for attribute name");
    getter = attribute_getter(runtime, rest.positional[0]);
    rest.positional.erase(rest.positional.begin());
  }
  std::string test;
  if (!rest.positional.empty()) {
    if (!rest.positional[0].is(Kind::kString)) fail("select: the name of a test is needed");
    test = rest.positional[0].text();
    rest.positional.erase(rest.positional.begin());
  }
  return make_iterator(runtime, "generator", input,
                       [source = LazyInput(input), getter, test, rest](Runtime& r, Value& value) mutable {
                         while (source.next(r, value)) {
                           r.charge(1);
                           const Value subject = getter(value);
                           const bool passes = test.empty() ? truth(subject) : apply_test(r, test, subject, rest);
                           if (passes == kKeep) return true;
                         }
                         return false;
                       });
}

Value filter_unique(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound = bind("unique", args, {"case_sensitive", "attribute"});
  const Getter key = key_getter(runtime, bound[1], flag(bound[0]));
  auto seen = std::make_shared<std::unordered_set<std::string>>();
  return make_iterator(runtime, "generator", input,
                       [source = LazyInput(input), key, seen](Runtime& r, Value& value) mutable {
                         while (source.next(r, value)) {
                           const std::string text = hash_key(r, key(value));
                           r.charge_bytes(text.size());
                           r.check_room(seen->size() * 64);
                           if (seen->insert(text).second) return true;
                         }
                         return false;
                       });
}

// --- Ordering -------------------------------------------------------------------------------------------------------

// Stable, by keys computed once; `reverse` keeps equal items in their order, as Python does.
std::vector<Value> sort_by(Runtime& runtime, const std::vector<Value>& items, const Getter& key, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  keyed.reserve(items.size());
  for (const Value& item : items) keyed.emplace_back(key(item), item);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(runtime, b.first, a.first) : less(runtime, a.first, b.first);
  });
  std::vector<Value> sorted;
  sorted.reserve(keyed.size());
  for (auto& [k, item] : keyed) sorted.push_back(std::move(item));
  return sorted;
}

Value filter_sort(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound = bind("sort", args, {"reverse", "case_sensitive", "attribute"});
  std::vector<Getter> getters;
  if (bound[2] && bound[2]->is(Kind::kString)) {
    for (const std::string& name : split(runtime, bound[2]->text(), ",", -1, false)) {
      getters.push_back(key_getter(runtime, runtime.string(name), flag(bound[1])));
    }
  } else {
    getters.push_back(key_getter(runtime, bound[2], flag(bound[1])));
  }
  const Getter key = [&](const Value& item) {
    std::vector<Value> keys;
    keys.reserve(getters.size());
    for (const Getter& getter : getters) keys.push_back(getter(item));
    return runtime.list(std::move(keys));
  };
  return runtime.list(sort_by(runtime, to_vector(runtime, input), key, flag(bound[0])));
}

Value filter_dictsort(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound = bind("dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string by = bound[1] ? to_str(runtime, *bound[1]) : "key";
  if (by != "key" && by != "value") fail("dictsort can only sort by either \"key\" or \"value\"");
  if (input.is(Kind::kUndefined)) fail_undefined(input);
  if (!input.is(Kind::kDict)) fail("'" + type_name(input) + "' object has no attribute 'items'");
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.dict().entries()) pairs.push_back(runtime.tuple({key, value}));
  const bool case_sensitive = flag(bound[0]);
  const Getter key = [&](const Value& pair) {
    const Value& part = pair.items()[by == "key" ? 0 : 1];
    return case_sensitive ? part : ignore_case(runtime, part);
  };
  return runtime.list(sort_by(runtime, pairs, key, flag(bound[2])));
}

Value filter_groupby(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound = bind("groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const bool has_default = bound[1] && !bound[1]->is(Kind::kNone);
  const Getter plain = attribute_getter(runtime, *bound[0], has_default ? &*bound[1] : nullptr);
  const bool case_sensitive = flag(bound[2]);
  const Getter key = [&](const Value& item) {
    return case_sensitive ? plain(item) : ignore_case(runtime, plain(item));
  };
  std::vector<Value> groups;
  std::vector<Value> members;
  const auto finish = [&] {
    if (members.empty()) return;
    const Value grouper = plain(members.front());
    Value pair = runtime.tuple({grouper, runtime.list(std::move(members))});
    pair.as<Sequence>().is_group = true;
    groups.push_back(pair);
    members.clear();
  };
  for (const Value& item : sort_by(runtime, to_vector(runtime, input), key, false)) {
    if (!members.empty() && !equals(runtime, key(members.front()), key(item))) finish();
    members.push_back(item);
  }
  finish();
  return runtime.list(std::move(groups));
}

template <bool kLargest>
Value filter_extreme(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound = bind(kLargest ? "max" : "min", args, {"case_sensitive", "attribute"});
  const Getter key = key_getter(runtime, bound[1], flag(bound[0]));
  const std::vector<Value> items = to_vector(runtime, input);
  if (items.empty()) return runtime.undefined("No aggregated item, sequence was empty.");
  std::size_t best = 0;
  for (std::size_t i = 1; i < items.size(); ++i) {
    const Value a = key(items[i]);
    const Value b = key(items[best]);
    if (kLargest ? less(runtime, b, a) : less(runtime, a, b)) best = i;
  }
  return items[best];
}

Value filter_sum(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound = bind("sum", args, {"attribute", "start"});
  const Getter getter = attribute_getter(runtime, bound[0].value_or(Value::none()));
  Value total = bound[1].value_or(Value::integer(0));
  if (total.is(Kind::kString)) fail("sum() cannot sum strings");
  for (const Value& item : to_vector(runtime, input)) total = binary(runtime, BinaryOp::kAdd, total, getter(item));
  return total;
}

// --- Dicts and attributes -------------------------------------------------------------------------------------------

Value filter_items(Runtime& runtime, const Value& input, const Args& args) {
  bind("items", args, {});
  return make_iterator(runtime, "generator", input,
                       [source = LazyInput(input), input](Runtime& r, Value& value) mutable {
                         if (!input.is(Kind::kUndefined) && !input.is(Kind::kDict))
                           fail("can only get item pairs from a mapping");
                         Value key;
                         if (!source.next(r, key)) return false;
                         value = r.tuple({key, *input.dict().find(r, key)});
                         return true;
                       });
}

Value filter_attr(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound = bind("attr", args, {"name"}, 1);
  const std::string name = to_str(runtime, *bound[0]);
  if (input.is(Kind::kUndefined)) fail_undefined(input);
  if (std::optional<Value> found = find_attribute(runtime, input, name)) return *found;
  return runtime.undefined("'" + type_name(input) + " object' has no attribute '" + name + "'");
}

constexpr NamedFilter kFilters[] = {
    {"list", filter_list},
    {"join", filter_join},
    {"first", filter_first},
    {"last", filter_last},
    {"reverse", filter_reverse},
    {"batch", filter_batch},
    {"slice", filter_slice},
    {"map", filter_map},
    {"select", filter_select<true, false>},
    {"reject", filter_select<false, false>},
    {"selectattr", filter_select<true, true>},
    {"rejectattr", filter_select<false, true>},
    {"unique", filter_unique},
    {"sort", filter_sort},
    {"dictsort", filter_dictsort},
    {"groupby", filter_groupby},
    {"min", filter_extreme<false>},
    {"max", filter_extreme<true>},
    {"sum", filter_sum},
    {"items", filter_items},
    {"attr", filter_attr},
};

}  // namespace

std::span<const NamedFilter> sequence_filters() {
  return kFilters;
}

}  // namespace nibble::text::jinja
