// What an operator works on: names, literals, and what may follow them: .name, [key], (arguments), |filter, is test.
#include <algorithm>
#include <charconv>

#include "text/jinja/error.h"
#include "text/jinja/parser_impl.h"

namespace nibble::text::jinja {

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
  const int height = max_height(items);
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
  const int height = std::max(subscript->object->height, max_height(keys) + 1);
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
      if (args.named.size() >= kMaxArguments) fail_here("too many keyword arguments");
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
