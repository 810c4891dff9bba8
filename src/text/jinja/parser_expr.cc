// Operators and everything that binds loosely.
#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/parser_impl.h"

namespace nibble::text::jinja {

int max_height(const Exprs& exprs) {
  int height = 0;
  for (const ExprPtr& expr : exprs) {
    if (expr != nullptr) height = std::max(height, expr->height);
  }
  return height;
}

int max_height(const CallArgs& args) {
  int height = max_height(args.positional);
  for (const auto& [name, value] : args.named) height = std::max(height, value->height);
  if (args.spread != nullptr) height = std::max(height, args.spread->height);
  if (args.spread_named != nullptr) height = std::max(height, args.spread_named->height);
  return height;
}

ExprPtr Parser::make_over(Expr::Node node, int line, int child_height) {
  if (child_height >= kMaxHeight) fail("expression is too deep (" + std::to_string(kMaxHeight) + " operations)", line);
  auto expr = std::make_unique<Expr>();
  expr->node = std::move(node);
  expr->line = line;
  expr->height = child_height + 1;
  return expr;
}

ExprPtr Parser::parse_expression(bool with_conditional) {
  const NestingGuard guard(*this);
  return with_conditional ? parse_conditional() : parse_or();
}

bool Parser::at_tuple_end() const {
  return current().kind == TokenKind::kExpressionClose || current().kind == TokenKind::kStatementClose ||
         at_operator(")");
}

// One expression, or several with commas: a tuple. `explicit_parentheses` allows the empty tuple.
ExprPtr Parser::parse_tuple(bool with_conditional, bool explicit_parentheses) {
  const int line = current().line;
  Exprs items;
  bool is_tuple = false;
  while (!at_tuple_end()) {
    items.push_back(parse_expression(with_conditional));
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return std::move(items[0]);
  if (items.empty() && !explicit_parentheses) fail_here("expected an expression, got " + describe_current());
  const int height = max_height(items);
  return make_over(TupleLiteral{std::move(items)}, line, height);
}

ExprPtr Parser::parse_conditional() {
  int line = current().line;
  ExprPtr value = parse_or();
  while (skip_name("if")) {
    ExprPtr condition = parse_or();
    ExprPtr otherwise;
    if (skip_name("else")) {
      const NestingGuard guard(*this);
      otherwise = parse_conditional();
    }
    const int height = std::max({value->height, condition->height, otherwise ? otherwise->height : 0});
    value = make_over(Conditional{std::move(condition), std::move(value), std::move(otherwise)}, line, height);
    line = current().line;
  }
  return value;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (at_name("or")) {
    const int line = take().line;
    ExprPtr right = parse_and();
    const int height = std::max(left->height, right->height);
    left = make_over(Logical{false, std::move(left), std::move(right)}, line, height);
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (at_name("and")) {
    const int line = take().line;
    ExprPtr right = parse_not();
    const int height = std::max(left->height, right->height);
    left = make_over(Logical{true, std::move(left), std::move(right)}, line, height);
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!at_name("not")) return parse_compare();
  const NestingGuard guard(*this);
  const int line = take().line;
  ExprPtr operand = parse_not();
  const int height = operand->height;
  return make_over(Not{std::move(operand)}, line, height);
}

ExprPtr Parser::parse_compare() {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {{"==", CompareOp::kEq}, {"!=", CompareOp::kNe},
                                                                    {"<", CompareOp::kLt},  {"<=", CompareOp::kLe},
                                                                    {">", CompareOp::kGt},  {">=", CompareOp::kGe}};
  const int line = current().line;
  Compare compare{parse_sum(), {}};
  int height = compare.first->height;
  while (true) {
    const auto* op =
        std::find_if(std::begin(kOps), std::end(kOps), [this](const auto& o) { return at_operator(o.first); });
    CompareOp kind = CompareOp::kIn;
    if (op != std::end(kOps)) {
      take();
      kind = op->second;
    } else if (at_name("not") && following().is(TokenKind::kName, "in")) {
      take();
      take();
      kind = CompareOp::kNotIn;
    } else if (!skip_name("in")) {
      break;
    }
    compare.rest.emplace_back(kind, parse_sum());
    height = std::max(height, compare.rest.back().second->height);
  }
  if (compare.rest.empty()) return std::move(compare.first);
  return make_over(std::move(compare), line, height);
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (at_operator("+") || at_operator("-")) {
    const Token op = take();
    ExprPtr right = parse_concat();
    const int height = std::max(left->height, right->height);
    const BinaryOp kind = op.value == "+" ? BinaryOp::kAdd : BinaryOp::kSub;
    left = make_over(Binary{kind, std::move(left), std::move(right)}, op.line, height);
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  const int line = current().line;
  Exprs parts;
  parts.push_back(parse_product());
  while (skip_operator("~")) parts.push_back(parse_product());
  if (parts.size() == 1) return std::move(parts[0]);
  const int height = max_height(parts);
  return make_over(Concat{std::move(parts)}, line, height);
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (at_operator("*") || at_operator("/") || at_operator("//") || at_operator("%")) {
    const Token op = take();
    ExprPtr right = parse_power();
    const int height = std::max(left->height, right->height);
    const BinaryOp kind = op.value == "*"    ? BinaryOp::kMul
                          : op.value == "/"  ? BinaryOp::kDiv
                          : op.value == "//" ? BinaryOp::kFloorDiv
                                             : BinaryOp::kMod;
    left = make_over(Binary{kind, std::move(left), std::move(right)}, op.line, height);
  }
  return left;
}

// Left-associative, unlike Python's: jinja2 is so.
ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary();
  while (at_operator("**")) {
    const int line = take().line;
    ExprPtr right = parse_unary();
    const int height = std::max(left->height, right->height);
    left = make_over(Binary{BinaryOp::kPow, std::move(left), std::move(right)}, line, height);
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  ExprPtr expr;
  if (at_operator("-") || at_operator("+")) {
    const NestingGuard guard(*this);
    const Token op = take();
    ExprPtr operand = parse_unary(false);
    const int height = operand->height;
    expr = make_over(Unary{op.value[0], std::move(operand)}, op.line, height);
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filter ? parse_filters_and_tests(std::move(expr)) : std::move(expr);
}

}  // namespace nibble::text::jinja
