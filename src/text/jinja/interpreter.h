// Walks the tree of a template: expressions to values (eval.cc), statements to text (exec.cc).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace nibble::text::jinja {

// The variables of one block. An inner block reads those of the outer ones and never writes them.
class Scope final : public Object {
 public:
  Scope(Runtime* runtime, std::shared_ptr<Scope> outer)
      : Object(runtime, sizeof *this + 256), parent(std::move(outer)) {}
  void clear() override { names.clear(); }

  const std::shared_ptr<Scope> parent;
  std::unordered_map<std::string, Value> names;
  bool kept = false;  // a macro refers to it
};

class Interpreter {
 public:
  Interpreter(Runtime& runtime, std::shared_ptr<Scope> globals) : runtime_(runtime), scope_(std::move(globals)) {}

  std::string render(const Block& block);

  // The text of a macro's body. Absent parameters take their defaults; `extras` are caller, kwargs and varargs.
  std::string render_macro(const Macro& macro, const std::shared_ptr<Scope>& closure, const Bound& parameters,
                           const std::vector<std::pair<std::string, Value>>& extras);
  // The body of a recursive loop over another iterable: what calling `loop` does.
  std::string render_loop(const For& node, const Value& iterable, int depth, const std::shared_ptr<Scope>& scope);

 private:
  enum class Flow : std::uint8_t { kNormal, kBreak, kContinue };
  class ScopeGuard;
  class OutputGuard;

  Value eval(const Expr& expr);
  Value eval_node(const Literal& node, const Expr& expr);
  Value eval_node(const Name& node, const Expr& expr);
  Value eval_node(const ListLiteral& node, const Expr& expr);
  Value eval_node(const TupleLiteral& node, const Expr& expr);
  Value eval_node(const DictLiteral& node, const Expr& expr);
  Value eval_node(const Attribute& node, const Expr& expr);
  Value eval_node(const Subscript& node, const Expr& expr);
  Value eval_node(const Slice& node, const Expr& expr);
  Value eval_node(const Call& node, const Expr& expr);
  Value eval_node(const Filter& node, const Expr& expr);
  Value eval_node(const Test& node, const Expr& expr);
  Value eval_node(const Unary& node, const Expr& expr);
  Value eval_node(const Not& node, const Expr& expr);
  Value eval_node(const Binary& node, const Expr& expr);
  Value eval_node(const Logical& node, const Expr& expr);
  Value eval_node(const Concat& node, const Expr& expr);
  Value eval_node(const Compare& node, const Expr& expr);
  Value eval_node(const Conditional& node, const Expr& expr);
  Value eval_call(const Call& node, int line, const Value* caller);
  Args eval_args(const CallArgs& args);
  std::vector<Value> eval_all(const Exprs& exprs);
  // A chain of filters whose innermost input is the text of a block.
  Value apply_block_filter(const Expr& chain, const Value& text);

  Flow exec(const Body& body);
  Flow exec_node(const Text& node);
  Flow exec_node(const Output& node);
  Flow exec_node(const If& node);
  Flow exec_node(const For& node);
  Flow exec_node(const Set& node);
  Flow exec_node(const SetBlock& node);
  Flow exec_node(const With& node);
  Flow exec_node(const MacroDefinition& node);
  Flow exec_node(const CallBlock& node);
  Flow exec_node(const FilterBlock& node);
  Flow exec_node(const Generation& node);
  Flow exec_node(const Break&) { return Flow::kBreak; }
  Flow exec_node(const Continue&) { return Flow::kContinue; }
  Flow run_loop(const For& node, const Value& iterable, int depth);
  std::shared_ptr<Iterator> filter_loop(const For& node, std::shared_ptr<Iterator> source);
  // Starts a block whose scope is the current one.
  Flow exec_block(const Block& block);
  // The same, but returns the text instead of writing it.
  std::pair<Flow, std::string> capture(const Block& block);

  void write(std::string_view text) { *output_ << text; }
  const Value* find(std::string_view name) const;
  void assign(const Target& target, const Value& value);
  Value make_macro(const std::shared_ptr<const Macro>& macro);
  std::shared_ptr<Scope> make_scope(std::shared_ptr<Scope> outer);

  Runtime& runtime_;
  std::shared_ptr<Scope> scope_;
  TextBuilder* output_ = nullptr;  // where statements write
};

}  // namespace nibble::text::jinja
