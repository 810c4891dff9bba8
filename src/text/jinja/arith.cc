// Equality, order and arithmetic with Python's rules.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "text/jinja/format.h"
#include "text/jinja/ops.h"
#include "text/jinja/print.h"

namespace nibble::text::jinja {
namespace {

[[noreturn]] void fail_overflow() {
  fail("integer result does not fit 64 bits, which is not supported");
}

[[noreturn]] void fail_operands(std::string_view op, const Value& a, const Value& b) {
  if (a.is(Kind::kUndefined)) fail_undefined(a);
  if (b.is(Kind::kUndefined)) fail_undefined(b);
  fail("unsupported operand types for " + std::string(op) + ": '" + type_name(a) + "' and '" + type_name(b) + "'");
}

constexpr std::string_view symbol(BinaryOp op) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<int>(op)];
}

// Exact comparison of an integer with a double: -1, 0, 1, or 2 when unordered (NaN).
int compare_mixed(std::int64_t i, double d) {
  if (std::isnan(d)) return 2;
  if (d >= 9223372036854775808.0) return -1;
  if (d < -9223372036854775808.0) return 1;
  const double whole = std::floor(d);
  const auto below = static_cast<std::int64_t>(whole);
  if (i != below) return i < below ? -1 : 1;
  return d > whole ? -1 : 0;
}

int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.integer_value() < b.integer_value() ? -1 : a.integer_value() > b.integer_value() ? 1 : 0;
  }
  if (a.is_integral()) return compare_mixed(a.integer_value(), b.real_value());
  if (b.is_integral()) {
    const int order = compare_mixed(b.integer_value(), a.real_value());
    return order == 2 ? 2 : -order;
  }
  if (std::isnan(a.real_value()) || std::isnan(b.real_value())) return 2;
  return a.real_value() < b.real_value() ? -1 : a.real_value() > b.real_value() ? 1 : 0;
}

bool equal_dicts(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [key, value] : a.entries()) {
    runtime.charge(1);
    const Value* other = b.find(runtime, key);
    if (other == nullptr || !equals(runtime, value, *other)) return false;
  }
  return true;
}

bool equal_ranges(const Range& a, const Range& b) {
  if (a.size != b.size) return false;
  return a.size == 0 || (a.start == b.start && (a.size == 1 || a.step == b.step));
}

bool equal_sequences(Runtime& runtime, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!equals(runtime, a[i], b[i])) return false;
  }
  return true;
}

Value integer_division(std::int64_t a, std::int64_t b, bool want_quotient) {
  if (b == 0) fail("integer division or modulo by zero");
  if (b == -1) {
    if (want_quotient && a == std::numeric_limits<std::int64_t>::min()) fail_overflow();
    return Value::integer(want_quotient ? -a : 0);
  }
  std::int64_t quotient = a / b;
  std::int64_t remainder = a % b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {  // Python rounds down
    --quotient;
    remainder += b;
  }
  return Value::integer(want_quotient ? quotient : remainder);
}

Value integer_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0.0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  while (true) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent == 0) return Value::integer(result);
    if (__builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
}

// The double nearest to a / b: beyond 53 bits the operands may not be rounded first.
double true_quotient(std::int64_t a, std::int64_t b) {
  constexpr std::uint64_t kExact = std::uint64_t{1} << 53;
  const auto size = [](std::int64_t i) {
    return i < 0 ? 0 - static_cast<std::uint64_t>(i) : static_cast<std::uint64_t>(i);
  };
  if (size(a) <= kExact && size(b) <= kExact) return static_cast<double>(a) / static_cast<double>(b);
  const int shift =
      std::max(0, 56 - static_cast<int>(std::bit_width(size(a))) + static_cast<int>(std::bit_width(size(b))));
  const unsigned __int128 scaled = static_cast<unsigned __int128>(size(a)) << shift;
  auto quotient = static_cast<std::uint64_t>(scaled / size(b));  // at least 55 bits, so that one more decides ties
  if (scaled % size(b) != 0) quotient |= 1;
  const double result = std::ldexp(static_cast<double>(quotient), -shift);
  return (a < 0) != (b < 0) ? -result : result;
}

Value integer_arithmetic(BinaryOp op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOp::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOp::kSub:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOp::kMul:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOp::kDiv:
      if (b == 0) fail("division by zero");
      return Value::real(true_quotient(a, b));
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod:
      return integer_division(a, b, op == BinaryOp::kFloorDiv);
    case BinaryOp::kPow:
      return integer_power(a, b);
  }
  if (overflow) fail_overflow();
  return Value::integer(result);
}

// Python's float floor division and modulo: the remainder has the divisor's sign.
Value float_division(double a, double b, bool want_quotient) {
  if (b == 0) fail("float floor division or modulo by zero");
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1.0;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (!want_quotient) return Value::real(remainder);
  if (quotient == 0) return Value::real(std::copysign(0.0, a / b));
  const double whole = std::floor(quotient);
  return Value::real(quotient - whole > 0.5 ? whole + 1.0 : whole);
}

Value float_arithmetic(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::real(a + b);
    case BinaryOp::kSub:
      return Value::real(a - b);
    case BinaryOp::kMul:
      return Value::real(a * b);
    case BinaryOp::kDiv:
      if (b == 0) fail("float division by zero");
      return Value::real(a / b);
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod:
      return float_division(a, b, op == BinaryOp::kFloorDiv);
    case BinaryOp::kPow: {
      if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
      if (a < 0 && b != std::floor(b)) fail("complex results of '**' are not supported");
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) fail("result of '**' is too large");
      return Value::real(result);
    }
  }
  return {};
}

Value concatenate(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is(Kind::kString)) {
    const bool markup = a.is_markup() || b.is_markup();
    runtime.check_room(a.text().size() + b.text().size());
    if (!markup || (a.is_markup() && b.is_markup())) return runtime.string(a.text() + b.text(), markup);
    const auto part = [&](const Value& v) { return v.is_markup() ? v.text() : escape_markup(runtime, v.text()); };
    return runtime.string(part(a) + part(b), true);
  }
  runtime.check_room((a.items().size() + b.items().size()) * sizeof(Value));
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(Kind::kList) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

Value repeat(Runtime& runtime, const Value& value, std::int64_t times) {
  const std::size_t n = times < 0 ? 0 : static_cast<std::size_t>(times);
  const bool is_text = value.is(Kind::kString);
  const std::size_t size = is_text ? value.text().size() : value.items().size() * sizeof(Value);
  runtime.check_room(n, size);
  runtime.charge_bytes(n * size);
  if (is_text) {
    std::string text;
    for (std::size_t i = 0; i < n && size != 0; ++i) text += value.text();
    return runtime.string(std::move(text), value.is_markup());
  }
  std::vector<Value> items;
  for (std::size_t i = 0; i < n && size != 0; ++i)
    items.insert(items.end(), value.items().begin(), value.items().end());
  return value.is(Kind::kList) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

bool repeatable(const Value& value) {
  return value.is(Kind::kString) || value.is_sequence();
}

}  // namespace

bool equals(Runtime& runtime, const Value& a, const Value& b) {
  const RecursionGuard guard(runtime);
  runtime.charge(1);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      runtime.charge_bytes(a.text().size());
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return equal_sequences(runtime, a.items(), b.items());
    case Kind::kDict:
      return equal_dicts(runtime, a.dict(), b.dict());
    case Kind::kRange:
      return equal_ranges(a.as<Range>(), b.as<Range>());
    case Kind::kDictView:
      fail("comparing dict views is not supported");
    default:
      return a.object() == b.object();
  }
}

bool less(Runtime& runtime, const Value& a, const Value& b) {
  const RecursionGuard guard(runtime);
  runtime.charge(1);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == -1;
  if (a.is(Kind::kString) && b.is(Kind::kString)) {
    runtime.charge_bytes(a.text().size());
    return a.text() < b.text();  // the order of UTF-8 bytes is the order of code points
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const std::size_t n = std::min(a.items().size(), b.items().size());
    for (std::size_t i = 0; i < n; ++i) {
      if (!equals(runtime, a.items()[i], b.items()[i])) return less(runtime, a.items()[i], b.items()[i]);
    }
    return a.items().size() < b.items().size();
  }
  if (a.is(Kind::kUndefined)) fail_undefined(a);
  if (b.is(Kind::kUndefined)) fail_undefined(b);
  fail("'<' not supported between instances of '" + type_name(a) + "' and '" + type_name(b) + "'");
}

bool compare(Runtime& runtime, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEq:
      return equals(runtime, a, b);
    case CompareOp::kNe:
      return !equals(runtime, a, b);
    case CompareOp::kIn:
      return contains(runtime, b, a);
    case CompareOp::kNotIn:
      return !contains(runtime, b, a);
    case CompareOp::kLt:
      return less(runtime, a, b);
    case CompareOp::kGt:
      return less(runtime, b, a);
    case CompareOp::kLe:
    case CompareOp::kGe:
      break;
  }
  const Value& low = op == CompareOp::kLe ? a : b;
  const Value& high = op == CompareOp::kLe ? b : a;
  if (low.is_number() && high.is_number()) return compare_numbers(low, high) <= 0;  // false for NaN, which is 2
  return less(runtime, low, high) || equals(runtime, low, high);
}

Value binary(Runtime& runtime, BinaryOp op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return integer_arithmetic(op, a.integer_value(), b.integer_value());
  if (a.is_number() && b.is_number()) return float_arithmetic(op, a.real_value(), b.real_value());
  if (op == BinaryOp::kAdd && a.kind() == b.kind() && repeatable(a)) return concatenate(runtime, a, b);
  if (op == BinaryOp::kMul && repeatable(a) && b.is_integral()) return repeat(runtime, a, b.integer_value());
  if (op == BinaryOp::kMul && repeatable(b) && a.is_integral()) return repeat(runtime, b, a.integer_value());
  if (op == BinaryOp::kMod && a.is(Kind::kString)) return format_percent(runtime, a, b);
  fail_operands(symbol(op), a, b);
}

Value unary(Runtime&, char op, const Value& operand) {
  if (operand.is(Kind::kUndefined)) fail_undefined(operand);
  if (operand.is(Kind::kFloat)) return Value::real(op == '-' ? -operand.real_value() : operand.real_value());
  if (!operand.is_integral())
    fail("bad operand type for unary " + std::string(1, op) + ": '" + type_name(operand) + "'");
  if (op == '+') return Value::integer(operand.integer_value());
  std::int64_t result = 0;
  if (__builtin_sub_overflow(std::int64_t{0}, operand.integer_value(), &result)) fail_overflow();
  return Value::integer(result);
}

}  // namespace nibble::text::jinja
