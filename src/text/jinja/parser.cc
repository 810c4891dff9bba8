#include "text/jinja/parser.h"

#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/names.h"
#include "text/jinja/parser_impl.h"

namespace nibble::text::jinja {

// --- Tokens ---------------------------------------------------------------------------------------------------------

std::string Parser::describe_current() const {
  switch (current().kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kExpressionClose:
      return "'}}'";
    case TokenKind::kStatementClose:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    default:
      return "'" + current().value + "'";
  }
}

void Parser::fail_here(std::string message) const {
  fail(std::move(message), current().line);
}

bool Parser::skip_operator(std::string_view op) {
  if (!at_operator(op)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

void Parser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail_here("expected '" + std::string(op) + "', got " + describe_current());
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_here("expected '" + std::string(name) + "', got " + describe_current());
}

Token Parser::expect_any_name() {
  if (current().kind != TokenKind::kName) fail_here("expected a name, got " + describe_current());
  return take();
}

void Parser::expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) fail_here("expected " + std::string(what) + ", got " + describe_current());
  take();
}

void Parser::finish_statement() {
  expect(TokenKind::kStatementClose, "'%}'");
}

// --- Names that make a macro accept more arguments ------------------------------------------------------------------

Parser::Use* Parser::MacroUse::find(std::string_view name) {
  return name == "caller" ? &caller : name == "varargs" ? &varargs : name == "kwargs" ? &kwargs : nullptr;
}

void Parser::note_read(std::string_view name) {
  for (MacroUse& macro : macros_) {
    Use* use = macro.find(name);
    if (use != nullptr && *use == Use::kNone) *use = Use::kRead;
  }
}

void Parser::note_write(std::string_view name) {
  for (MacroUse& macro : macros_) {
    Use* use = macro.find(name);
    if (use != nullptr && *use == Use::kNone) *use = Use::kWritten;
  }
}

// --- Statements -----------------------------------------------------------------------------------------------------

Body Parser::parse() {
  Body body = parse_body({});
  if (current().kind != TokenKind::kEnd) fail_here("unexpected " + describe_current());
  return body;
}

// Until one of the end tags, whose name is then the current token; without end tags, until the template ends.
Body Parser::parse_body(std::initializer_list<std::string_view> end_tags) {
  const NestingGuard guard(*this);
  const int line = block_line_;
  Body body;
  while (current().kind != TokenKind::kEnd) {
    const Token token = take();
    if (token.kind == TokenKind::kText) {
      body.push_back(std::make_unique<Stmt>(Stmt{Text{token.value}, token.line}));
    } else if (token.kind == TokenKind::kExpressionOpen) {
      body.push_back(std::make_unique<Stmt>(Stmt{Output{parse_tuple()}, token.line}));
      expect(TokenKind::kExpressionClose, "'}}'");
    } else {
      const bool at_end = current().kind == TokenKind::kName &&
                          std::find(end_tags.begin(), end_tags.end(), current().value) != end_tags.end();
      if (at_end) return body;
      parse_statement(body);
    }
  }
  if (end_tags.size() != 0) {
    fail("'{% " + std::string(*(end_tags.end() - 1)) + " %}' is missing for the block that starts here", line);
  }
  return body;
}

// The body of a block and its end tag, up to but without '%}'.
Body Parser::parse_block(std::string_view end_tag) {
  skip_operator(":");
  finish_statement();
  Body body = parse_body({end_tag});
  take();
  return body;
}

void Parser::parse_statement(Body& body) {
  if (current().kind != TokenKind::kName) fail_here("expected the name of a tag, got " + describe_current());
  const Token tag = take();
  block_line_ = tag.line;
  const auto add = [&body, &tag](Stmt::Node node) {
    body.push_back(std::make_unique<Stmt>(Stmt{std::move(node), tag.line}));
  };
  if (tag.value == "if") {
    add(parse_if());
  } else if (tag.value == "for") {
    add(parse_for());
  } else if (tag.value == "set") {
    add(parse_set());
  } else if (tag.value == "with") {
    add(parse_with());
  } else if (tag.value == "macro") {
    add(parse_macro());
  } else if (tag.value == "call") {
    add(parse_call_block());
  } else if (tag.value == "filter") {
    add(parse_filter_block());
  } else if (tag.value == "generation") {
    add(parse_generation());
  } else if (tag.value == "print") {
    parse_print(body);
  } else if (tag.value == "break" || tag.value == "continue") {
    if (loop_depth_ == 0) fail("'{% " + tag.value + " %}' outside of a loop", tag.line);
    add(tag.value == "break" ? Stmt::Node(Break{}) : Stmt::Node(Continue{}));
  } else {
    fail_unknown_tag(tag);
  }
  finish_statement();
}

void Parser::fail_unknown_tag(const Token& tag) {
  static constexpr std::string_view kUnsupported[] = {"block", "extends", "include", "import", "from", "autoescape"};
  const bool known = std::find(std::begin(kUnsupported), std::end(kUnsupported), tag.value) != std::end(kUnsupported);
  if (known) fail("tag '" + tag.value + "' is not supported in a chat template", tag.line);
  fail("unknown tag '" + tag.value + "'", tag.line);
}

If Parser::parse_if() {
  If node;
  while (true) {
    ExprPtr condition = parse_tuple(false);
    skip_operator(":");
    finish_statement();
    node.branches.emplace_back(std::move(condition), parse_body({"elif", "else", "endif"}));
    const Token tag = take();
    block_line_ = tag.line;
    if (tag.value == "elif") continue;
    if (tag.value == "else") node.otherwise = parse_block("endif");
    return node;
  }
}

For Parser::parse_for() {
  For node;
  ++for_depth_;
  node.target = parse_target(TargetUse::kLoop);
  expect_name("in");
  node.iterable = parse_tuple(false);
  if (skip_name("if")) node.condition = parse_expression();
  node.recursive = skip_name("recursive");
  skip_operator(":");
  finish_statement();
  ++loop_depth_;
  node.body.body = parse_body({"else", "endfor"});
  --loop_depth_;
  if (take().value == "else") node.otherwise.body = parse_block("endfor");
  --for_depth_;
  return node;
}

Stmt::Node Parser::parse_set() {
  Target target = parse_target(TargetUse::kSet);
  if (skip_operator("=")) return Set{std::move(target), parse_tuple()};
  ExprPtr filter = parse_filter_chain(nullptr);
  return SetBlock{std::move(target), std::move(filter), Block{parse_block("endset")}};
}

With Parser::parse_with() {
  With node;
  while (current().kind != TokenKind::kStatementClose && !at_operator(":")) {
    if (!node.bindings.empty()) expect_operator(",");
    Target target = parse_target(TargetUse::kWith);
    expect_operator("=");
    node.bindings.emplace_back(std::move(target), parse_expression());
  }
  node.body.body = parse_block("endwith");
  return node;
}

void Parser::parse_signature(Macro& macro) {
  expect_operator("(");
  while (!at_operator(")")) {
    if (!macro.parameters.empty()) expect_operator(",");
    const Token name = expect_any_name();
    note_write(name.value);
    if (std::find(macro.parameters.begin(), macro.parameters.end(), name.value) != macro.parameters.end()) {
      fail("parameter '" + name.value + "' is given twice", name.line);
    }
    if (macro.parameters.size() >= kMaxArguments) fail_here("too many parameters");
    macro.parameters.push_back(name.value);
    if (skip_operator("=")) {
      macro.defaults.push_back(parse_expression());
    } else if (!macro.defaults.empty()) {
      fail_here("a parameter without a default follows one with a default");
    }
  }
  take();
}

Body Parser::parse_macro_body(Macro& macro, std::string_view end_tag) {
  const int outer_loops = std::exchange(loop_depth_, 0);
  macros_.emplace_back();
  Body body = parse_block(end_tag);
  const MacroUse use = macros_.back();
  macros_.pop_back();
  loop_depth_ = outer_loops;
  const auto has = [&macro](std::string_view name) {
    return std::find(macro.parameters.begin(), macro.parameters.end(), name) != macro.parameters.end();
  };
  macro.reads_caller = use.caller == Use::kRead;
  macro.reads_varargs = use.varargs == Use::kRead && !has("varargs");
  macro.reads_kwargs = use.kwargs == Use::kRead && !has("kwargs");
  return body;
}

MacroDefinition Parser::parse_macro() {
  auto macro = std::make_shared<Macro>();
  const Token name = expect_any_name();
  macro->name = name.value;
  note_write(name.value);
  parse_signature(*macro);
  macro->body.body = parse_macro_body(*macro, "endmacro");
  const auto caller = std::find(macro->parameters.begin(), macro->parameters.end(), "caller");
  const auto index = static_cast<std::size_t>(caller - macro->parameters.begin());
  if (macro->reads_caller && index + macro->defaults.size() < macro->parameters.size()) {
    fail("parameter 'caller' of a macro must have a default", name.line);
  }
  return {std::move(macro)};
}

CallBlock Parser::parse_call_block() {
  auto caller = std::make_shared<Macro>();
  const int line = current().line;
  if (at_operator("(")) parse_signature(*caller);
  ExprPtr call = parse_expression();
  if (!std::holds_alternative<Call>(call->node)) fail("'{% call %}' needs a call", line);
  caller->body.body = parse_macro_body(*caller, "endcall");
  return {std::move(caller), std::move(call)};
}

FilterBlock Parser::parse_filter_block() {
  ExprPtr filter = parse_filter_chain(parse_filter(nullptr));
  return {std::move(filter), Block{parse_block("endfilter")}};
}

Generation Parser::parse_generation() {
  const int outer_loops = std::exchange(loop_depth_, 0);
  Generation node{Block{parse_block("endgeneration")}};
  loop_depth_ = outer_loops;
  return node;
}

void Parser::parse_print(Body& body) {
  for (bool first = true; current().kind != TokenKind::kStatementClose; first = false) {
    if (!first) expect_operator(",");
    const int line = current().line;
    body.push_back(std::make_unique<Stmt>(Stmt{Output{parse_expression()}, line}));
  }
}

Target Parser::parse_single_target(TargetUse use) {
  const NestingGuard guard(*this);
  Target target;
  target.line = current().line;
  if (skip_operator("(")) {
    target = parse_target(use);
    expect_operator(")");
    return target;
  }
  const Token name = expect_any_name();
  static constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
  if (std::find(std::begin(kConstants), std::end(kConstants), name.value) != std::end(kConstants)) {
    fail("cannot assign to '" + name.value + "'", name.line);
  }
  target.name = name.value;
  if (use == TargetUse::kSet && skip_operator(".")) {
    target.kind = Target::Kind::kNamespaceAttribute;
    target.attribute = expect_any_name().value;
    note_read(target.name);
    return target;
  }
  if (target.name == "loop" && for_depth_ > 0 && use != TargetUse::kWith) {
    fail("cannot assign to the special variable 'loop'", name.line);
  }
  note_write(target.name);
  return target;
}

Target Parser::parse_target(TargetUse use) {
  Target first = parse_single_target(use);
  if (!at_operator(",")) return first;
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  tuple.line = first.line;
  tuple.items.push_back(std::move(first));
  const auto at_end = [this, use] { return at_operator(")") || (use == TargetUse::kLoop && at_name("in")); };
  while (skip_operator(",") && !at_end()) tuple.items.push_back(parse_single_target(use));
  return tuple;
}

Block parse_template(std::string_view source) {
  Block root{Parser(tokenize(source)).parse()};
  resolve_names(root);
  return root;
}

}  // namespace nibble::text::jinja
