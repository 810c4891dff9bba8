#include "text/jinja/objects.h"

namespace nibble::text::jinja {

// --- loop -----------------------------------------------------------------------------------------------------------

bool LoopObject::advance(Runtime& runtime) {
  if (!peek(runtime)) return false;
  has_before_ = index0_ >= 0;
  before_ = std::move(current_);
  current_ = std::move(*after_);
  after_.reset();
  ++index0_;
  return true;
}

const std::optional<Value>& LoopObject::peek(Runtime& runtime) {
  if (after_) return after_;
  Value next;
  if (!read_ahead_.empty()) {
    after_ = std::move(read_ahead_.back());
    read_ahead_.pop_back();
  } else if (source_ != nullptr && source_->next(runtime, next)) {
    after_ = std::move(next);
  }
  return after_;
}

// The length of an iterator is found by reading all of it.
std::int64_t LoopObject::size(Runtime& runtime) {
  if (size_) return static_cast<std::int64_t>(*size_);
  std::vector<Value> rest;
  Value item;
  while (source_ != nullptr && source_->next(runtime, item)) {
    runtime.charge(1);
    runtime.check_room(rest.size() * sizeof(Value));
    rest.push_back(std::move(item));
  }
  size_ = rest.size() + static_cast<std::size_t>(index0_ + 1) + (after_ ? 1 : 0);
  read_ahead_.assign(rest.rbegin(), rest.rend());
  source_.reset();
  return static_cast<std::int64_t>(*size_);
}

std::string LoopObject::repr(Runtime& runtime) {
  return "<LoopContext " + std::to_string(index0_ + 1) + "/" + std::to_string(size(runtime)) + ">";
}

Value LoopObject::cycle(const Args& args) const {
  if (args.positional.empty()) fail("no items for cycling given");
  return args.positional[static_cast<std::size_t>(index0_) % args.positional.size()];
}

Value LoopObject::changed(Runtime& runtime, const Args& args) {
  Value now = runtime.tuple(args.positional);
  if (last_changed_ && equals(runtime, *last_changed_, now)) return Value::boolean(false);
  last_changed_ = std::move(now);
  return Value::boolean(true);
}

std::optional<Value> LoopObject::attribute(Runtime& runtime, std::string_view name) {
  if (name == "index") return Value::integer(index0_ + 1);
  if (name == "index0") return Value::integer(index0_);
  if (name == "first") return Value::boolean(index0_ == 0);
  if (name == "last") return Value::boolean(!peek(runtime));
  if (name == "length") return Value::integer(size(runtime));
  if (name == "revindex") return Value::integer(size(runtime) - index0_);
  if (name == "revindex0") return Value::integer(size(runtime) - index0_ - 1);
  if (name == "depth") return Value::integer(depth_ + 1);
  if (name == "depth0") return Value::integer(depth_);
  if (name == "previtem") return has_before_ ? before_ : runtime.undefined("there is no previous item");
  if (name == "nextitem") {
    const std::optional<Value>& next = peek(runtime);
    return next ? *next : runtime.undefined("there is no next item");
  }
  if (name != "cycle" && name != "changed") return std::nullopt;
  const auto body = [this, is_cycle = name == "cycle"](Runtime& r, const Args& args) {
    return is_cycle ? cycle(args) : changed(r, args);
  };
  runtime.keep(shared_from_this());  // the method refers to this object
  return Value(Kind::kHost, std::make_shared<Function>(&runtime, "method", body));
}

Value LoopObject::call(Runtime& runtime, const Args& args) {
  if (!node_.recursive) fail("the loop must have the 'recursive' marker to be called recursively");
  const Bound bound = bind("loop", args, {"iterable"}, 1);
  return runtime.string(interpreter_.render_loop(node_, *bound[0], depth_ + 1, scope_));
}

void LoopObject::clear() {
  source_.reset();
  read_ahead_.clear();
  scope_.reset();
  current_ = before_ = Value();
  after_.reset();
  last_changed_.reset();
}

// --- Macros ---------------------------------------------------------------------------------------------------------

// Matches arguments as jinja2 does: parameters first, then caller, **kwargs and *varargs where the body reads them.
Value MacroObject::call(Runtime& runtime, const Args& args) {
  const std::vector<std::string>& names = macro_->parameters;
  Bound parameters(names.size());
  std::vector<std::pair<std::string, Value>> named = args.named;
  const auto take_named = [&named](std::string_view name) {
    std::optional<Value> value;
    for (auto entry = named.begin(); entry != named.end(); ++entry) {
      if (entry->first != name) continue;
      value = std::move(entry->second);
      named.erase(entry);
      break;
    }
    return value;
  };
  bool found_caller = false;
  for (std::size_t i = 0; i < names.size(); ++i) {
    runtime.charge(1 + named.size() / 8);
    parameters[i] = i < args.positional.size() ? std::optional<Value>(args.positional[i]) : take_named(names[i]);
    found_caller = found_caller || names[i] == "caller";
  }
  std::vector<std::pair<std::string, Value>> extras;
  if (macro_->reads_caller && !found_caller) {
    const std::optional<Value> caller = take_named("caller");
    const bool absent = !caller || caller->is(Kind::kNone);
    extras.emplace_back("caller", absent ? runtime.undefined("No caller defined") : *caller);
  }
  if (macro_->reads_kwargs) {
    std::vector<Dict::Entry> entries;
    entries.reserve(named.size());
    for (const auto& [name, value] : named) entries.emplace_back(runtime.string(name), value);
    extras.emplace_back("kwargs", runtime.dict(std::move(entries)));
  } else if (!named.empty()) {
    fail("macro '" + macro_->name + "' takes no keyword argument '" + named.front().first + "'");
  }
  const bool has_more = args.positional.size() > names.size();
  if (macro_->reads_varargs) {
    std::vector<Value> rest;
    if (has_more)
      rest.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(names.size()), args.positional.end());
    extras.emplace_back("varargs", runtime.tuple(std::move(rest)));
  } else if (has_more) {
    fail("macro '" + macro_->name + "' takes not more than " + std::to_string(names.size()) + " argument(s)");
  }
  return runtime.string(interpreter_.render_macro(*macro_, closure_, parameters, extras));
}

std::optional<Value> MacroObject::attribute(Runtime& runtime, std::string_view name) {
  if (name == "name") return macro_->name.empty() ? Value::none() : runtime.string(macro_->name);
  if (name == "catch_kwargs") return Value::boolean(macro_->reads_kwargs);
  if (name == "catch_varargs") return Value::boolean(macro_->reads_varargs);
  if (name == "caller") return Value::boolean(macro_->reads_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const std::string& parameter : macro_->parameters) names.push_back(runtime.string(parameter));
  return runtime.tuple(std::move(names));
}

}  // namespace nibble::text::jinja
