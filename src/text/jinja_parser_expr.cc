#include <algorithm>
#include <charconv>

#include "text/jinja_error.h"
#include "text/jinja_parser_impl.h"

namespace nibble::text::jinja {

int max_height(const Exprs& exprs) {
  int height = 0;
  for (const ExprPtr& expr : exprs) {
    if (expr != nullptr) height = std::max(height, expr->height);
  }
  return height;
}

namespace {

int max_height(const CallArgs& args) {
  int height = max_height(args.positional);
  for (const auto& [name, value] : args.named) height = std::max(height, value->height);
  if (args.spread != nullptr) height = std::max(height, args.spread->height);
  if (args.spread_named != nullptr) height = std::max(height, args.spread_named->height);
  return height;
}

int max_height_of(const Exprs& exprs) {
  return ::nibble::text::jinja::max_height(exprs);
}

}  // namespace

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
  const int height = max_height_of(items);
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
  const int height = max_height_of(parts);
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

ExprPtr Parser::parse_primary() {
  switch (current().kind) {
    case TokenKind::kName:
      return parse_name();
    case TokenKind::kString:
      return parse_string();
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return parse_number();
    default:
      break;
  }
  if (skip_operator("(")) {
    ExprPtr inner = parse_tuple(true, true);
    expect_operator(")");
    return inner;
  }
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  fail_here("unexpected " + describe_current());
}

ExprPtr Parser::parse_name() {
  const Token token = take();
  if (token.value == "true" || token.value == "True") return make_over(Literal{Value::boolean(true)}, token.line, 0);
  if (token.value == "false" || token.value == "False") return make_over(Literal{Value::boolean(false)}, token.line, 0);
  if (token.value == "none" || token.value == "None") return make_over(Literal{Value::none()}, token.line, 0);
  note_read(token.value);
  return make_over(Name{token.value}, token.line, 0);
}

ExprPtr Parser::parse_number() {
  const Token token = take();
  const std::string& text = token.value;
  if (token.kind == TokenKind::kFloat) {
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return make_over(Literal{Value::real(value)}, token.line, 0);
  }
  const char mark = text.size() > 1 ? text[1] : '0';
  const int base = mark == 'x' || mark == 'X'   ? 16
                   : mark == 'o' || mark == 'O' ? 8
                   : mark == 'b' || mark == 'B' ? 2
                                                : 10;
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data() + (base == 10 ? 0 : 2), end, value, base);
  if (error != std::errc() || last != end) fail("integer " + text + " does not fit 64 bits", token.line);
  return make_over(Literal{Value::integer(value)}, token.line, 0);
}

// Adjacent strings are one string.
ExprPtr Parser::parse_string() {
  const int line = current().line;
  std::string text;
  while (current().kind == TokenKind::kString) text += take().value;
  return make_over(Literal{Value(Kind::kString, std::make_shared<String>(nullptr, std::move(text), false))}, line, 0);
}

ExprPtr Parser::parse_list() {
  const int line = take().line;
  Exprs items;
  while (!at_operator("]")) {
    items.push_back(parse_expression());
    if (!at_operator("]")) expect_operator(",");
  }
  take();
  const int height = max_height_of(items);
  return make_over(ListLiteral{std::move(items)}, line, height);
}

ExprPtr Parser::parse_dict() {
  const int line = take().line;
  DictLiteral dict;
  int height = 0;
  while (!at_operator("}")) {
    ExprPtr key = parse_expression();
    expect_operator(":");
    ExprPtr value = parse_expression();
    height = std::max({height, key->height, value->height});
    dict.entries.emplace_back(std::move(key), std::move(value));
    if (!at_operator("}")) expect_operator(",");
  }
  take();
  return make_over(std::move(dict), line, height);
}

ExprPtr Parser::parse_postfix(ExprPtr expr) {
  while (true) {
    if (at_operator(".")) {
      expr = parse_attribute(std::move(expr));
    } else if (at_operator("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (at_operator("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr expr) {
  while (true) {
    if (at_operator("|")) {
      expr = parse_filter_chain(std::move(expr));
    } else if (at_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (at_operator("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_attribute(ExprPtr object) {
  const int line = take().line;
  const int height = object->height;
  if (current().kind == TokenKind::kName) {
    return make_over(Attribute{std::move(object), take().value}, line, height);
  }
  if (current().kind != TokenKind::kInteger) fail_here("expected a name or a number after '.'");
  return make_over(Subscript{std::move(object), parse_number()}, line, height);
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
  take();
  if (at_operator("]")) fail_here("expected an expression, got ']'");
  ExprPtr expr = parse_subscript_item(std::move(object));
  if (at_operator(",")) expr = parse_tuple_subscript(std::move(expr));
  expect_operator("]");
  return expr;
}

// object[a, b]: `first` is object[a], and the current token the comma.
ExprPtr Parser::parse_tuple_subscript(ExprPtr first) {
  const int line = current().line;
  auto* subscript = std::get_if<Subscript>(&first->node);
  Exprs keys;
  if (subscript != nullptr) keys.push_back(std::move(subscript->key));
  while (subscript != nullptr && skip_operator(",")) {
    keys.push_back(parse_expression());
    if (at_operator(":")) subscript = nullptr;
  }
  if (subscript == nullptr) fail_here("a slice among several subscripts is not supported");
  const int height = std::max(subscript->object->height, max_height_of(keys) + 1);
  ExprPtr tuple = make_over(TupleLiteral{std::move(keys)}, line, height - 1);
  return make_over(Subscript{std::move(subscript->object), std::move(tuple)}, line, height);
}

ExprPtr Parser::parse_subscript_item(ExprPtr object) {
  const int line = current().line;
  const auto at_bound_end = [this] { return at_operator("]") || at_operator(","); };
  ExprPtr start, stop, step;
  if (!at_operator(":")) {
    start = parse_expression();
    if (!at_operator(":")) {
      const int height = std::max(object->height, start->height);
      return make_over(Subscript{std::move(object), std::move(start)}, line, height);
    }
  }
  take();
  if (!at_operator(":") && !at_bound_end()) stop = parse_expression();
  if (skip_operator(":") && !at_bound_end()) step = parse_expression();
  int height = object->height;
  for (const ExprPtr* bound : {&start, &stop, &step}) height = std::max(height, *bound ? (*bound)->height : 0);
  return make_over(Slice{std::move(object), std::move(start), std::move(stop), std::move(step)}, line, height);
}

ExprPtr Parser::parse_call(ExprPtr callee) {
  const int line = current().line;
  CallArgs args = parse_call_args();
  const int height = std::max(callee->height, max_height(args));
  return make_over(Call{std::move(callee), std::move(args)}, line, height);
}

CallArgs Parser::parse_call_args() {
  expect_operator("(");
  CallArgs args;
  const auto ensure = [this](bool valid) {
    if (!valid) fail_here("invalid order of arguments in a call");
  };
  while (!at_operator(")")) {
    if (skip_operator("*")) {
      ensure(!args.spread && !args.spread_named);
      args.spread = parse_expression();
    } else if (skip_operator("**")) {
      ensure(!args.spread_named);
      args.spread_named = parse_expression();
    } else if (current().kind == TokenKind::kName && following().is(TokenKind::kOperator, "=")) {
      ensure(!args.spread_named);
      std::string name = take().value;
      take();
      for (const auto& [other, value] : args.named) {
        if (other == name) fail_here("keyword argument '" + name + "' is given twice");
      }
      args.named.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(!args.spread && !args.spread_named && args.named.empty());
      args.positional.push_back(parse_expression());
    }
    if (!at_operator(")")) expect_operator(",");
  }
  take();
  return args;
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_any_name().value;
  while (skip_operator(".")) name += "." + expect_any_name().value;
  return name;
}

ExprPtr Parser::parse_filter(ExprPtr input) {
  const int line = current().line;
  std::string name = parse_dotted_name();
  CallArgs args;
  if (at_operator("(")) args = parse_call_args();
  const int height = std::max(input ? input->height : 0, max_height(args));
  return make_over(Filter{std::move(input), std::move(name), std::move(args)}, line, height);
}

ExprPtr Parser::parse_filter_chain(ExprPtr input) {
  while (skip_operator("|")) input = parse_filter(std::move(input));
  return input;
}

ExprPtr Parser::parse_test(ExprPtr input) {
  const int line = take().line;
  const bool negated = skip_name("not");
  std::string name = parse_dotted_name();
  CallArgs args;
  const bool starts_argument = current().kind == TokenKind::kName || current().kind == TokenKind::kString ||
                               current().kind == TokenKind::kInteger || current().kind == TokenKind::kFloat ||
                               at_operator("[") || at_operator("{");
  if (at_operator("(")) {
    args = parse_call_args();
  } else if (starts_argument && !at_name("else") && !at_name("or") && !at_name("and")) {
    if (at_name("is")) fail_here("tests with 'is' cannot be chained");
    args.positional.push_back(parse_postfix(parse_primary()));
  }
  const int height = std::max(input->height, max_height(args));
  ExprPtr test = make_over(Test{std::move(input), std::move(name), std::move(args)}, line, height);
  if (!negated) return test;
  return make_over(Not{std::move(test)}, line, height + 1);
}

}  // namespace nibble::text::jinja
