#include "text/jinja/names.h"

#include <algorithm>
#include <functional>
#include <set>

#include "text/jinja/error.h"
#include "text/jinja/library.h"

namespace nibble::text::jinja {
namespace {

// jinja2 has these filters and nibble does not.
constexpr std::string_view kUnsupportedFilters[] = {"filesizeformat", "pprint",   "random", "striptags",
                                                    "urlize",         "wordwrap", "xmlattr"};

// The names that one block has seen, by order of reading.
struct Frame {
  Block& block;
  const Frame* outer = nullptr;
  std::set<std::string, std::less<>> seen = {};
  std::vector<std::function<void(const Frame&)>> inner = {};  // blocks to visit once this one is known

  bool knows(std::string_view name) const { return seen.contains(name) || (outer != nullptr && outer->knows(name)); }
};

// Whether a part of the template runs only under a condition.
enum class When : bool { kAlways, kMaybe };

class NameResolver {
 public:
  void visit_block(Block& block, const Frame* outer, const std::vector<std::string>& parameters,
                   const std::function<void(Frame&)>& visit_more = {}) {
    Frame frame{block, outer};
    frame.seen.insert(parameters.begin(), parameters.end());
    if (visit_more) visit_more(frame);
    visit_body(frame, block.body, When::kAlways);
    for (const auto& visit_inner : frame.inner) visit_inner(frame);
  }

 private:
  void visit_body(Frame& frame, Body& body, When when) {
    for (const auto& statement : body) {
      std::visit([&](auto& node) { visit(frame, node, when); }, statement->node);
    }
  }

  void visit(Frame&, Text&, When) {}
  void visit(Frame&, Break&, When) {}
  void visit(Frame&, Continue&, When) {}
  void visit(Frame& frame, Output& node, When when) { read(frame, node.value, when); }
  void visit(Frame& frame, If& node, When) {
    for (auto& [condition, body] : node.branches) {
      read(frame, condition, When::kMaybe);
      visit_body(frame, body, When::kMaybe);
    }
    visit_body(frame, node.otherwise, When::kMaybe);
  }
  void visit(Frame& frame, Set& node, When when) {
    read(frame, node.value, when);
    write(frame, node.target, when);
  }
  void visit(Frame& frame, SetBlock& node, When when) {
    write(frame, node.target, when);
    add_inner(frame, node.body, {}, [this, &node](Frame& inner) { read(inner, node.filter, When::kAlways); });
  }
  void visit(Frame& frame, FilterBlock& node, When when) {
    read(frame, node.filter, when);
    add_inner(frame, node.body, {}, [this, &node](Frame& inner) { read(inner, node.filter, When::kAlways); });
  }
  void visit(Frame& frame, Generation& node, When) { add_inner(frame, node.body, {}); }
  void visit(Frame& frame, With& node, When when) {
    std::vector<std::string> names;
    for (auto& [target, value] : node.bindings) {
      read(frame, value, when);
      collect(target, names);
    }
    add_inner(frame, node.body, names);
  }
  void visit(Frame& frame, For& node, When when) {
    read(frame, node.iterable, when);
    std::vector<std::string> names = {"loop"};
    collect(node.target, names);
    add_inner(frame, node.body, names, [this, &node](Frame& inner) {
      Block none;
      Frame condition{none, inner.outer, inner.seen};
      read(condition, node.condition, When::kAlways);
    });
    add_inner(frame, node.otherwise, {});
  }
  void visit(Frame& frame, MacroDefinition& node, When when) {
    write_name(frame, node.macro->name, when);
    add_macro(frame, *node.macro);
  }
  void visit(Frame& frame, CallBlock& node, When when) {
    read(frame, node.call, when);
    add_macro(frame, *node.caller);
  }

  void add_macro(Frame& frame, Macro& macro) {
    std::vector<std::string> names = macro.parameters;
    if (macro.reads_caller) names.emplace_back("caller");
    if (macro.reads_varargs) names.emplace_back("varargs");
    if (macro.reads_kwargs) names.emplace_back("kwargs");
    add_inner(frame, macro.body, names, [this, &macro](Frame& inner) {
      for (const ExprPtr& value : macro.defaults) read(inner, value, When::kAlways);
    });
  }
  void add_inner(Frame& frame, Block& block, const std::vector<std::string>& parameters,
                 const std::function<void(Frame&)>& visit_more = {}) {
    frame.inner.emplace_back([this, &block, parameters, visit_more](const Frame& outer) {
      visit_block(block, &outer, parameters, visit_more);
    });
  }

  static void collect(const Target& target, std::vector<std::string>& names) {
    if (target.kind == Target::Kind::kName) names.push_back(target.name);
    for (const Target& item : target.items) collect(item, names);
  }

  void write_name(Frame& frame, const std::string& name, When when) {
    if (!frame.seen.insert(name).second || when == When::kMaybe) return;
    if (frame.outer == nullptr || !frame.outer->knows(name)) frame.block.unset.push_back(name);
  }
  void write(Frame& frame, const Target& target, When when) {
    if (target.kind == Target::Kind::kName) write_name(frame, target.name, when);
    if (target.kind == Target::Kind::kNamespaceAttribute) read_name(frame, target.name);
    for (const Target& item : target.items) write(frame, item, when);
  }
  static void read_name(Frame& frame, const std::string& name) {
    if (!frame.knows(name)) frame.seen.insert(name);
  }

  void read(Frame& frame, const ExprPtr& expr, When when) {
    if (expr == nullptr) return;
    std::visit([&](const auto& node) { read_node(frame, node, when, expr->line); }, expr->node);
  }
  void read_all(Frame& frame, const Exprs& exprs, When when) {
    for (const ExprPtr& expr : exprs) read(frame, expr, when);
  }
  void read_args(Frame& frame, const CallArgs& args, When when) {
    read_all(frame, args.positional, when);
    for (const auto& [name, value] : args.named) read(frame, value, when);
    read(frame, args.spread, when);
    read(frame, args.spread_named, when);
  }

  void read_node(Frame&, const Literal&, When, int) {}
  void read_node(Frame& frame, const Name& node, When, int line) {
    if (node.name == "self" && !frame.knows(node.name)) fail("the variable 'self' is not supported", line);
    read_name(frame, node.name);
  }
  void read_node(Frame& frame, const ListLiteral& node, When when, int) { read_all(frame, node.items, when); }
  void read_node(Frame& frame, const TupleLiteral& node, When when, int) { read_all(frame, node.items, when); }
  void read_node(Frame& frame, const DictLiteral& node, When when, int) {
    for (const auto& [key, value] : node.entries) {
      read(frame, key, when);
      read(frame, value, when);
    }
  }
  void read_node(Frame& frame, const Attribute& node, When when, int) { read(frame, node.object, when); }
  void read_node(Frame& frame, const Subscript& node, When when, int) {
    read(frame, node.object, when);
    read(frame, node.key, when);
  }
  void read_node(Frame& frame, const Slice& node, When when, int) {
    for (const ExprPtr* part : {&node.object, &node.start, &node.stop, &node.step}) read(frame, *part, when);
  }
  void read_node(Frame& frame, const Call& node, When when, int) {
    read(frame, node.callee, when);
    read_args(frame, node.args, when);
  }
  void read_node(Frame& frame, const Filter& node, When when, int line) {
    if (when == When::kAlways && find_filter(node.name) == nullptr) {
      const bool known = std::find(std::begin(kUnsupportedFilters), std::end(kUnsupportedFilters), node.name) !=
                         std::end(kUnsupportedFilters);
      fail(known ? "filter '" + node.name + "' is not supported" : "no filter named '" + node.name + "'", line);
    }
    read(frame, node.input, when);
    read_args(frame, node.args, when);
  }
  void read_node(Frame& frame, const Test& node, When when, int line) {
    if (when == When::kAlways && find_test(node.name) == nullptr) fail("no test named '" + node.name + "'", line);
    read(frame, node.input, when);
    read_args(frame, node.args, when);
  }
  void read_node(Frame& frame, const Unary& node, When when, int) { read(frame, node.operand, when); }
  void read_node(Frame& frame, const Not& node, When when, int) { read(frame, node.operand, when); }
  void read_node(Frame& frame, const Binary& node, When when, int) {
    read(frame, node.left, when);
    read(frame, node.right, when);
  }
  void read_node(Frame& frame, const Logical& node, When when, int) {
    read(frame, node.left, when);
    read(frame, node.right, when);
  }
  void read_node(Frame& frame, const Concat& node, When when, int) { read_all(frame, node.parts, when); }
  void read_node(Frame& frame, const Compare& node, When when, int) {
    read(frame, node.first, when);
    for (const auto& [op, operand] : node.rest) read(frame, operand, when);
  }
  void read_node(Frame& frame, const Conditional& node, When, int) {
    for (const ExprPtr* part : {&node.condition, &node.value, &node.otherwise}) read(frame, *part, When::kMaybe);
  }
};

}  // namespace

void resolve_names(Block& root) {
  NameResolver().visit_block(root, nullptr, {});
}

}  // namespace nibble::text::jinja
