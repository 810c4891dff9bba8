// The names a template finds: filters, tests and global functions.
#pragma once

#include <string_view>

#include "text/jinja/runtime.h"

namespace nibble::text::jinja {

using FilterFunction = Value (*)(Runtime&, const Value& input, const Args& args);
using TestFunction = bool (*)(Runtime&, const Value& input, const Args& args);

struct NamedFilter {
  std::string_view name;
  FilterFunction function;
};
struct NamedTest {
  std::string_view name;
  TestFunction function;
};

FilterFunction find_filter(std::string_view name);  // null when unknown
TestFunction find_test(std::string_view name);      // null when unknown
Value apply_filter(Runtime& runtime, std::string_view name, const Value& input, const Args& args);
bool apply_test(Runtime& runtime, std::string_view name, const Value& input, const Args& args);

// range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
std::vector<std::pair<std::string, Value>> make_globals(Runtime& runtime);

}  // namespace nibble::text::jinja
