// Tests: what may stand after `is`.
#include "text/jinja/filters.h"
#include "text/jinja/library.h"
#include "text/jinja/ops.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace nibble::text::jinja {
namespace {

template <Kind kKind>
bool test_kind(Runtime&, const Value& input, const Args& args) {
  bind("test", args, {});
  return input.is(kKind);
}

bool test_defined(Runtime&, const Value& input, const Args& args) {
  bind("defined", args, {});
  return !input.is(Kind::kUndefined);
}

template <bool kWanted>
bool test_truth(Runtime&, const Value& input, const Args& args) {
  bind("test", args, {});
  return input.is(Kind::kBool) && truth(input) == kWanted;
}

bool test_number(Runtime&, const Value& input, const Args& args) {
  bind("number", args, {});
  return input.is_number();
}

bool test_iterable(Runtime&, const Value& input, const Args& args) {
  bind("iterable", args, {});
  return is_iterable(input);
}

// Python asks for a length and for subscripts.
bool test_sequence(Runtime&, const Value& input, const Args& args) {
  bind("sequence", args, {});
  switch (input.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
      return true;
    default:
      return false;
  }
}

bool test_callable(Runtime&, const Value& input, const Args& args) {
  bind("callable", args, {});
  return input.is(Kind::kUndefined) || (input.is(Kind::kHost) && input.as<Host>().is_callable());
}

bool test_escaped(Runtime&, const Value& input, const Args& args) {
  bind("escaped", args, {});
  return input.is_markup();
}

bool remainder_is(Runtime& runtime, const Value& input, const Value& divisor, std::int64_t wanted) {
  return equals(runtime, binary(runtime, BinaryOp::kMod, input, divisor), Value::integer(wanted));
}

bool test_odd(Runtime& runtime, const Value& input, const Args& args) {
  bind("odd", args, {});
  return remainder_is(runtime, input, Value::integer(2), 1);
}

bool test_even(Runtime& runtime, const Value& input, const Args& args) {
  bind("even", args, {});
  return remainder_is(runtime, input, Value::integer(2), 0);
}

bool test_divisibleby(Runtime& runtime, const Value& input, const Args& args) {
  return remainder_is(runtime, input, *bind("divisibleby", args, {"num"}, 1)[0], 0);
}

template <CompareOp kOp>
bool test_compare(Runtime& runtime, const Value& input, const Args& args) {
  return compare(runtime, kOp, input, *bind("comparison", args, {"other"}, 1)[0]);
}

bool test_sameas(Runtime& runtime, const Value& input, const Args& args) {
  const Value other = *bind("sameas", args, {"other"}, 1)[0];
  if (input.kind() != other.kind()) return false;
  if (input.object() != nullptr) return input.object() == other.object();
  return input.is(Kind::kNone) || equals(runtime, input, other);
}

template <bool kUpper>
bool test_case(Runtime& runtime, const Value& input, const Args& args) {
  bind("case test", args, {});
  const std::string text = to_str(runtime, input);
  runtime.charge_bytes(text.size() * 8);
  return is_all_of_case(text, kUpper);
}

bool test_filter(Runtime&, const Value& input, const Args& args) {
  bind("filter", args, {});
  return input.is(Kind::kString) && find_filter(input.text()) != nullptr;
}

bool test_test(Runtime&, const Value& input, const Args& args) {
  bind("test", args, {});
  return input.is(Kind::kString) && find_test(input.text()) != nullptr;
}

constexpr NamedTest kTests[] = {
    {"defined", test_defined},
    {"undefined", test_kind<Kind::kUndefined>},
    {"none", test_kind<Kind::kNone>},
    {"boolean", test_kind<Kind::kBool>},
    {"true", test_truth<true>},
    {"false", test_truth<false>},
    {"integer", test_kind<Kind::kInt>},
    {"float", test_kind<Kind::kFloat>},
    {"number", test_number},
    {"string", test_kind<Kind::kString>},
    {"mapping", test_kind<Kind::kDict>},
    {"iterable", test_iterable},
    {"sequence", test_sequence},
    {"callable", test_callable},
    {"escaped", test_escaped},
    {"odd", test_odd},
    {"even", test_even},
    {"divisibleby", test_divisibleby},
    {"lower", test_case<false>},
    {"upper", test_case<true>},
    {"sameas", test_sameas},
    {"filter", test_filter},
    {"test", test_test},
    {"in", test_compare<CompareOp::kIn>},
    {"==", test_compare<CompareOp::kEq>},
    {"eq", test_compare<CompareOp::kEq>},
    {"equalto", test_compare<CompareOp::kEq>},
    {"!=", test_compare<CompareOp::kNe>},
    {"ne", test_compare<CompareOp::kNe>},
    {">", test_compare<CompareOp::kGt>},
    {"gt", test_compare<CompareOp::kGt>},
    {"greaterthan", test_compare<CompareOp::kGt>},
    {">=", test_compare<CompareOp::kGe>},
    {"ge", test_compare<CompareOp::kGe>},
    {"<", test_compare<CompareOp::kLt>},
    {"lt", test_compare<CompareOp::kLt>},
    {"lessthan", test_compare<CompareOp::kLt>},
    {"<=", test_compare<CompareOp::kLe>},
    {"le", test_compare<CompareOp::kLe>},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  for (const NamedTest& test : kTests) {
    if (test.name == name) return test.function;
  }
  return nullptr;
}

}  // namespace nibble::text::jinja
