// Expressions to values.
#include "text/jinja/interpreter.h"
#include "text/jinja/library.h"
#include "text/jinja/ops.h"
#include "text/jinja/print.h"

namespace nibble::text::jinja {

Value Interpreter::eval(const Expr& expr) {
  const RecursionGuard guard(runtime_);
  runtime_.charge(1);
  runtime_.line = expr.line;
  return std::visit([&](const auto& node) { return eval_node(node, expr); }, expr.node);
}

const Value* Interpreter::find(std::string_view name) const {
  const std::string key(name);
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    const auto found = scope->names.find(key);
    if (found != scope->names.end()) return &found->second;
  }
  return nullptr;
}

Value Interpreter::eval_node(const Literal& node, const Expr&) {
  return node.value;
}

Value Interpreter::eval_node(const Name& node, const Expr&) {
  const Value* found = find(node.name);
  return found != nullptr ? *found : runtime_.undefined("'" + node.name + "' is undefined");
}

std::vector<Value> Interpreter::eval_all(const Exprs& exprs) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) values.push_back(eval(*expr));
  return values;
}

Value Interpreter::eval_node(const ListLiteral& node, const Expr&) {
  return runtime_.list(eval_all(node.items));
}

Value Interpreter::eval_node(const TupleLiteral& node, const Expr&) {
  return runtime_.tuple(eval_all(node.items));
}

Value Interpreter::eval_node(const DictLiteral& node, const Expr&) {
  std::vector<Dict::Entry> entries;
  for (const auto& [key, value] : node.entries) {
    Value k = eval(*key);
    entries.emplace_back(std::move(k), eval(*value));
  }
  return runtime_.dict(std::move(entries));
}

Value Interpreter::eval_node(const Attribute& node, const Expr& expr) {
  const Value object = eval(*node.object);
  runtime_.line = expr.line;
  return get_attribute(runtime_, object, node.name);
}

Value Interpreter::eval_node(const Subscript& node, const Expr& expr) {
  const Value object = eval(*node.object);
  const Value key = eval(*node.key);
  runtime_.line = expr.line;
  return get_item(runtime_, object, key);
}

Value Interpreter::eval_node(const Slice& node, const Expr& expr) {
  const auto bound = [this](const ExprPtr& part) { return part != nullptr ? eval(*part) : Value::none(); };
  const Value object = eval(*node.object);
  const Value start = bound(node.start);
  const Value stop = bound(node.stop);
  const Value step = bound(node.step);
  runtime_.line = expr.line;
  return get_slice(runtime_, object, start, stop, step);
}

Args Interpreter::eval_args(const CallArgs& node) {
  Args args;
  args.positional = eval_all(node.positional);
  for (const auto& [name, value] : node.named) args.named.emplace_back(name, eval(*value));
  if (node.spread != nullptr) {
    for (Value& value : to_vector(runtime_, eval(*node.spread))) args.positional.push_back(std::move(value));
  }
  if (node.spread_named != nullptr) {
    const Value named = eval(*node.spread_named);
    if (!named.is(Kind::kDict)) fail("argument after ** must be a mapping, not " + type_name(named));
    for (const auto& [key, value] : named.dict().entries()) {
      if (!key.is(Kind::kString)) fail("keywords must be strings");
      runtime_.charge(1 + args.named.size() / 8);
      if (args.find(key.text()) != nullptr) fail("keyword argument '" + key.text() + "' is given twice");
      args.named.emplace_back(key.text(), value);
    }
  }
  return args;
}

Value Interpreter::eval_call(const Call& node, int line, const Value* caller) {
  const Value callee = eval(*node.callee);
  Args args = eval_args(node.args);
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  runtime_.line = line;
  return call(runtime_, callee, args);
}

Value Interpreter::eval_node(const Call& node, const Expr& expr) {
  return eval_call(node, expr.line, nullptr);
}

Value Interpreter::eval_node(const Filter& node, const Expr& expr) {
  const Value input = eval(*node.input);
  const Args args = eval_args(node.args);
  runtime_.line = expr.line;
  return apply_filter(runtime_, node.name, input, args);
}

Value Interpreter::apply_block_filter(const Expr& chain, const Value& text) {
  const auto& filter = std::get<Filter>(chain.node);
  const Value input = filter.input != nullptr ? apply_block_filter(*filter.input, text) : text;
  const Args args = eval_args(filter.args);
  runtime_.line = chain.line;
  return apply_filter(runtime_, filter.name, input, args);
}

Value Interpreter::eval_node(const Test& node, const Expr& expr) {
  const Value input = eval(*node.input);
  const Args args = eval_args(node.args);
  runtime_.line = expr.line;
  return Value::boolean(apply_test(runtime_, node.name, input, args));
}

Value Interpreter::eval_node(const Unary& node, const Expr& expr) {
  const Value operand = eval(*node.operand);
  runtime_.line = expr.line;
  return unary(runtime_, node.op, operand);
}

Value Interpreter::eval_node(const Not& node, const Expr&) {
  return Value::boolean(!truth(eval(*node.operand)));
}

Value Interpreter::eval_node(const Binary& node, const Expr& expr) {
  const Value left = eval(*node.left);
  const Value right = eval(*node.right);
  runtime_.line = expr.line;
  return binary(runtime_, node.op, left, right);
}

Value Interpreter::eval_node(const Logical& node, const Expr&) {
  const Value left = eval(*node.left);
  return truth(left) == node.is_and ? eval(*node.right) : left;
}

Value Interpreter::eval_node(const Concat& node, const Expr& expr) {
  TextBuilder out(runtime_);
  for (const ExprPtr& part : node.parts) out << to_str(runtime_, eval(*part));
  runtime_.line = expr.line;
  return runtime_.string(out.take());
}

Value Interpreter::eval_node(const Compare& node, const Expr& expr) {
  Value left = eval(*node.first);
  for (const auto& [op, operand] : node.rest) {
    Value right = eval(*operand);
    runtime_.line = expr.line;
    if (!compare(runtime_, op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::eval_node(const Conditional& node, const Expr&) {
  if (truth(eval(*node.condition))) return eval(*node.value);
  if (node.otherwise != nullptr) return eval(*node.otherwise);
  return runtime_.undefined("the inline if-expression evaluated to false and no else section was defined");
}

}  // namespace nibble::text::jinja
