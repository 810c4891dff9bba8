// The recursive-descent parser, shared by parser.cc (statements), parser_expr.cc (operators) and
// parser_primary.cc.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/token.h"

namespace nibble::text::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Body parse();

 private:
  // The largest nesting of blocks and brackets, and the largest height of an expression's tree.
  static constexpr int kMaxNesting = 100;
  static constexpr int kMaxHeight = 300;
  static constexpr std::size_t kMaxArguments = 255;  // with names: they are compared with each other
  class NestingGuard;

  // Statements.
  Body parse_body(std::initializer_list<std::string_view> end_tags);
  void parse_statement(Body& body);
  Body parse_block(std::string_view end_tag);
  If parse_if();
  For parse_for();
  Stmt::Node parse_set();
  With parse_with();
  MacroDefinition parse_macro();
  CallBlock parse_call_block();
  FilterBlock parse_filter_block();
  Generation parse_generation();
  void parse_signature(Macro& macro);
  Body parse_macro_body(Macro& macro, std::string_view end_tag);
  enum class TargetUse : std::uint8_t { kSet, kLoop, kWith };
  Target parse_target(TargetUse use);
  Target parse_single_target(TargetUse use);
  void parse_print(Body& body);
  void finish_statement();
  [[noreturn]] void fail_unknown_tag(const Token& tag);

  // Expressions, from the loosest binding to the tightest.
  ExprPtr parse_tuple(bool with_conditional = true, bool explicit_parentheses = false);
  ExprPtr parse_expression(bool with_conditional = true);
  ExprPtr parse_conditional();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter = true);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_number();
  ExprPtr parse_string();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_filters_and_tests(ExprPtr expr);
  ExprPtr parse_attribute(ExprPtr object);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_subscript_item(ExprPtr object);
  ExprPtr parse_tuple_subscript(ExprPtr first);
  ExprPtr parse_call(ExprPtr callee);
  CallArgs parse_call_args();
  ExprPtr parse_filter(ExprPtr input);
  ExprPtr parse_filter_chain(ExprPtr input);
  ExprPtr parse_test(ExprPtr input);
  std::string parse_dotted_name();
  bool at_tuple_end() const;

  // Makes a node over children of the given height (0: none), and checks its own.
  ExprPtr make_over(Expr::Node node, int line, int child_height);

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool at_operator(std::string_view op) const { return current().is(TokenKind::kOperator, op); }
  bool at_name(std::string_view name) const { return current().is(TokenKind::kName, name); }
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view op);
  void expect_name(std::string_view name);
  Token expect_any_name();
  void expect(TokenKind kind, std::string_view what);
  [[noreturn]] void fail_here(std::string message) const;
  std::string describe_current() const;

  // Names that a macro's body reads, for caller, varargs and kwargs.
  void note_read(std::string_view name);
  void note_write(std::string_view name);
  enum class Use : std::uint8_t { kNone, kRead, kWritten };  // whichever came first
  struct MacroUse {
    Use caller = Use::kNone, varargs = Use::kNone, kwargs = Use::kNone;
    Use* find(std::string_view name);
  };

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  int block_line_ = 1;  // of the tag that opens the body to be parsed next
  int for_depth_ = 0;   // enclosing {% for %} tags, across macros
  int loop_depth_ = 0;  // enclosing loops that break and continue may leave
  std::vector<MacroUse> macros_;
};

class Parser::NestingGuard {
 public:
  explicit NestingGuard(Parser& parser) : parser_(parser) {
    if (++parser_.nesting_ > kMaxNesting) {
      --parser_.nesting_;
      parser_.fail_here("blocks or brackets nest deeper than " + std::to_string(kMaxNesting) + " levels");
    }
  }
  ~NestingGuard() { --parser_.nesting_; }

 private:
  Parser& parser_;
};

// The largest height among expressions, nulls counting 0.
int max_height(const Exprs& exprs);
int max_height(const CallArgs& args);

}  // namespace nibble::text::jinja
