// Statements to text.
#include "text/jinja/interpreter.h"
#include "text/jinja/objects.h"
#include "text/jinja/ops.h"
#include "text/jinja/print.h"

namespace nibble::text::jinja {

class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, std::shared_ptr<Scope> scope)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.scope_, std::move(scope))) {}
  ~ScopeGuard() { interpreter_.scope_ = std::move(outer_); }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& interpreter_;
  std::shared_ptr<Scope> outer_;
};

class Interpreter::OutputGuard {
 public:
  explicit OutputGuard(Interpreter& interpreter)
      : text(interpreter.runtime_), interpreter_(interpreter), outer_(std::exchange(interpreter.output_, &text)) {}
  ~OutputGuard() { interpreter_.output_ = outer_; }
  OutputGuard(const OutputGuard&) = delete;
  OutputGuard& operator=(const OutputGuard&) = delete;
  TextBuilder text;

 private:
  Interpreter& interpreter_;
  TextBuilder* outer_;
};

std::shared_ptr<Scope> Interpreter::make_scope(std::shared_ptr<Scope> outer) {
  return std::make_shared<Scope>(&runtime_, std::move(outer));
}

std::string Interpreter::render(const Block& block) {
  OutputGuard output(*this);
  exec_block(block);
  return output.text.take();
}

Interpreter::Flow Interpreter::exec(const Body& body) {
  const RecursionGuard guard(runtime_);
  for (const auto& statement : body) {
    runtime_.charge(1);
    runtime_.line = statement->line;
    const Flow flow = std::visit([this](const auto& node) { return exec_node(node); }, statement->node);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::exec_block(const Block& block) {
  for (const std::string& name : block.unset) {
    scope_->names.try_emplace(name, runtime_.undefined("'" + name + "' is undefined"));
  }
  return exec(block.body);
}

std::pair<Interpreter::Flow, std::string> Interpreter::capture(const Block& block) {
  OutputGuard output(*this);
  const Flow flow = exec_block(block);
  return {flow, output.text.take()};
}

void Interpreter::assign(const Target& target, const Value& value) {
  switch (target.kind) {
    case Target::Kind::kName:
      scope_->names[target.name] = value;
      return;
    case Target::Kind::kNamespaceAttribute: {
      const Value* space = find(target.name);
      if (space == nullptr) fail("'" + target.name + "' is undefined", target.line);
      if (!space->is(Kind::kNamespace)) fail("cannot assign attribute on non-namespace object", target.line);
      space->as<Namespace>().set(runtime_, target.attribute, value);
      return;
    }
    case Target::Kind::kTuple:
      break;
  }
  if (!is_iterable(value)) fail("cannot unpack non-iterable " + type_name(value) + " object", target.line);
  const std::vector<Value> parts = to_vector(runtime_, value);
  if (parts.size() != target.items.size()) {
    fail((parts.size() < target.items.size() ? "not enough" : "too many") +
             std::string(" values to unpack (expected ") + std::to_string(target.items.size()) + ", got " +
             std::to_string(parts.size()) + ")",
         target.line);
  }
  for (std::size_t i = 0; i < parts.size(); ++i) assign(target.items[i], parts[i]);
}

Interpreter::Flow Interpreter::exec_node(const Text& node) {
  write(node.text);
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::exec_node(const Output& node) {
  write(to_str(runtime_, eval(*node.value)));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::exec_node(const If& node) {
  for (const auto& [condition, body] : node.branches) {
    if (truth(eval(*condition))) return exec(body);
  }
  return exec(node.otherwise);
}

Interpreter::Flow Interpreter::exec_node(const Set& node) {
  assign(node.target, eval(*node.value));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::exec_node(const SetBlock& node) {
  Value value;
  {
    const ScopeGuard scope(*this, make_scope(scope_));
    auto [flow, text] = capture(node.body);
    if (flow != Flow::kNormal) return flow;
    value = runtime_.string(std::move(text));
    if (node.filter != nullptr) value = apply_block_filter(*node.filter, value);
  }
  assign(node.target, value);
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::exec_node(const With& node) {
  std::vector<Value> values;
  for (const auto& [target, value] : node.bindings) values.push_back(eval(*value));
  const ScopeGuard scope(*this, make_scope(scope_));
  for (std::size_t i = 0; i < values.size(); ++i) assign(node.bindings[i].first, values[i]);
  return exec_block(node.body);
}

Interpreter::Flow Interpreter::exec_node(const FilterBlock& node) {
  const ScopeGuard scope(*this, make_scope(scope_));
  auto [flow, text] = capture(node.body);
  if (flow != Flow::kNormal) return flow;
  write(to_str(runtime_, apply_block_filter(*node.filter, runtime_.string(std::move(text)))));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::exec_node(const Generation& node) {
  const ScopeGuard scope(*this, make_scope(scope_));
  return exec_block(node.body);
}

// --- Macros ---------------------------------------------------------------------------------------------------------

// The macro refers to the scopes around it, and they may refer to the macro: all are kept until the render ends.
Value Interpreter::make_macro(const std::shared_ptr<const Macro>& macro) {
  for (std::shared_ptr<Scope> scope = scope_; scope != nullptr && !scope->kept; scope = scope->parent) {
    scope->kept = true;
    runtime_.keep(scope);
  }
  return Value(Kind::kHost, std::make_shared<MacroObject>(&runtime_, *this, macro, scope_));
}

Interpreter::Flow Interpreter::exec_node(const MacroDefinition& node) {
  scope_->names[node.macro->name] = make_macro(node.macro);
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::exec_node(const CallBlock& node) {
  const Value caller = make_macro(node.caller);
  write(to_str(runtime_, eval_call(std::get<Call>(node.call->node), node.call->line, &caller)));
  return Flow::kNormal;
}

std::string Interpreter::render_macro(const Macro& macro, const std::shared_ptr<Scope>& closure,
                                      const Bound& parameters,
                                      const std::vector<std::pair<std::string, Value>>& extras) {
  const RecursionGuard guard(runtime_);
  const ScopeGuard scope(*this, make_scope(closure));
  for (const auto& [name, value] : extras) scope_->names[name] = value;
  const std::size_t first_default = parameters.size() - macro.defaults.size();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = macro.parameters[i];
    if (parameters[i]) {
      scope_->names[name] = *parameters[i];
    } else if (i >= first_default) {
      scope_->names[name] = eval(*macro.defaults[i - first_default]);
    } else {
      scope_->names[name] = runtime_.undefined("parameter '" + name + "' was not provided");
    }
  }
  return capture(macro.body).second;
}

// --- Loops ----------------------------------------------------------------------------------------------------------

Interpreter::Flow Interpreter::exec_node(const For& node) {
  return run_loop(node, eval(*node.iterable), 0);
}

std::string Interpreter::render_loop(const For& node, const Value& iterable, int depth,
                                     const std::shared_ptr<Scope>& scope) {
  const RecursionGuard guard(runtime_);
  const ScopeGuard scope_guard(*this, scope);
  OutputGuard output(*this);
  run_loop(node, iterable, depth);
  return output.text.take();
}

namespace {

// The items of another iterator for which a condition of the template holds.
class FilteredIterator final : public Iterator {
 public:
  FilteredIterator(Runtime* runtime, std::shared_ptr<Iterator> source, std::function<bool(const Value&)> condition)
      : Iterator(runtime, "generator", source->depth + 1),
        source_(std::move(source)),
        condition_(std::move(condition)) {}
  bool next(Runtime& runtime, Value& value) override {
    while (source_->next(runtime, value)) {
      runtime.charge(1);
      if (condition_(value)) return true;
    }
    return false;
  }

 private:
  std::shared_ptr<Iterator> source_;
  std::function<bool(const Value&)> condition_;
};

}  // namespace

std::shared_ptr<Iterator> Interpreter::filter_loop(const For& node, std::shared_ptr<Iterator> source) {
  // Not the scope of the moment: the loop's items are asked for from inside of its body.
  const auto condition = [this, &node, outer = scope_](const Value& item) {
    const ScopeGuard scope(*this, make_scope(outer));
    assign(node.target, item);
    return truth(eval(*node.condition));
  };
  return std::make_shared<FilteredIterator>(&runtime_, std::move(source), condition);
}

Interpreter::Flow Interpreter::run_loop(const For& node, const Value& iterable, int depth) {
  std::shared_ptr<Iterator> source = iterate(runtime_, iterable);
  std::optional<std::size_t> size;
  if (!iterable.is(Kind::kString)) size = length(iterable);  // counting characters is left to whoever asks
  if (node.condition != nullptr) {
    source = filter_loop(node, std::move(source));
    size.reset();
  }
  const auto loop = std::make_shared<LoopObject>(&runtime_, *this, node, std::move(source), size, depth, scope_);
  const std::shared_ptr<Scope> outer = scope_;
  std::shared_ptr<Scope> inner;
  bool ran = false;
  while (loop->advance(runtime_)) {
    runtime_.charge(1);
    if (inner != nullptr && inner.use_count() == 1) {
      inner->names.clear();
    } else {
      inner = make_scope(outer);
    }
    const ScopeGuard scope(*this, inner);
    inner->names["loop"] = Value(Kind::kHost, loop);
    assign(node.target, loop->current());
    const Flow flow = exec_block(node.body);
    if (flow == Flow::kBreak) break;
    ran = ran || flow == Flow::kNormal;  // jinja2: a turn that ends with break or continue does not count
  }
  inner.reset();
  if (loop.use_count() > 1) runtime_.keep(loop);
  if (ran) return Flow::kNormal;
  const ScopeGuard scope(*this, make_scope(outer));
  return exec_block(node.otherwise);
}

}  // namespace nibble::text::jinja
