// The syntax tree of a template. Expressions are values of a variant, statements likewise; both know their line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/value.h"

namespace nibble::text::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Exprs = std::vector<ExprPtr>;
using Body = std::vector<std::unique_ptr<Stmt>>;

// A body with variables of its own. `unset` are those that it assigns before it reads them: they are undefined until
// then, even for macros and inner loops that come first, and even when the context has a value of that name.
// jinja2 decides this when it compiles a template; names.cc does.
struct Block {
  Body body = {};
  std::vector<std::string> unset = {};
};

// Arguments of a call, a filter or a test: f(a, key=b, *more, **named).
struct CallArgs {
  Exprs positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr spread;        // *expression, or null
  ExprPtr spread_named;  // **expression, or null
};

enum class BinaryOp : std::uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class CompareOp : std::uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct ListLiteral {
  Exprs items;
};
struct TupleLiteral {
  Exprs items;
};
struct DictLiteral {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct Attribute {  // object.name
  ExprPtr object;
  std::string name;
};
struct Subscript {  // object[key]
  ExprPtr object;
  ExprPtr key;
};
struct Slice {  // object[start:stop:step], each may be null
  ExprPtr object, start, stop, step;
};
struct Call {
  ExprPtr callee;
  CallArgs args;
};
struct Filter {  // input|name(args); input is null for {% filter %} and {% set x|filter %}
  ExprPtr input;
  std::string name;
  CallArgs args;
};
struct Test {  // input is name(args)
  ExprPtr input;
  std::string name;
  CallArgs args;
};
struct Unary {
  char op;  // '-' or '+'
  ExprPtr operand;
};
struct Not {
  ExprPtr operand;
};
struct Binary {
  BinaryOp op;
  ExprPtr left, right;
};
struct Logical {
  bool is_and;
  ExprPtr left, right;
};
struct Concat {  // a ~ b ~ c
  Exprs parts;
};
struct Compare {  // a < b <= c
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct Conditional {  // value if condition else otherwise; `otherwise` may be null
  ExprPtr condition, value, otherwise;
};

struct Expr {
  using Node = std::variant<Literal, Name, ListLiteral, TupleLiteral, DictLiteral, Attribute, Subscript, Slice, Call,
                            Filter, Test, Unary, Not, Binary, Logical, Concat, Compare, Conditional>;
  Node node;
  int line = 0;
  int height = 1;  // 1 + the largest height below: evaluation and destruction recurse that deep
};

// What {% set %}, {% for %} and {% with %} assign to.
struct Target {
  enum class Kind : std::uint8_t { kName, kNamespaceAttribute, kTuple };
  Kind kind = Kind::kName;
  std::string name = {};       // the variable, or the namespace
  std::string attribute = {};  // of the namespace
  std::vector<Target> items = {};
  int line = 0;
};

struct Text {
  std::string text;
};
struct Output {
  ExprPtr value;
};
struct If {
  std::vector<std::pair<ExprPtr, Body>> branches;  // if, elif, elif ...
  Body otherwise;
};
struct For {
  Target target;
  ExprPtr iterable;
  ExprPtr condition;  // {% for x in y if condition %}, may be null
  Block body;
  Block otherwise;  // {% else %}: ran when the body never did
  bool recursive = false;
};
struct Set {
  Target target;
  ExprPtr value;
};
struct SetBlock {
  Target target;
  ExprPtr filter;  // a chain of Filter whose innermost input is null, or null
  Block body;
};
struct With {
  std::vector<std::pair<Target, ExprPtr>> bindings;
  Block body;
};
struct Macro {
  std::string name;  // empty for the body of {% call %}
  std::vector<std::string> parameters;
  Exprs defaults;  // of the last parameters
  Block body;
  // Whether the body reads these names, which makes the macro accept them.
  bool reads_caller = false, reads_varargs = false, reads_kwargs = false;
};
struct MacroDefinition {
  std::shared_ptr<Macro> macro;
};
struct CallBlock {
  std::shared_ptr<Macro> caller;
  ExprPtr call;  // holds a Call
};
struct FilterBlock {
  ExprPtr filter;
  Block body;
};
struct Generation {  // {% generation %}: marks assistant text for training masks; it renders its body
  Block body;
};
struct Break {};
struct Continue {};

struct Stmt {
  using Node = std::variant<Text, Output, If, For, Set, SetBlock, With, MacroDefinition, CallBlock, FilterBlock,
                            Generation, Break, Continue>;
  Node node;
  int line = 0;
};

}  // namespace nibble::text::jinja
