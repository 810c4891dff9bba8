// Tables of methods, one file per kind of value.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/runtime.h"

namespace nibble::text::jinja {

struct NamedMethod {
  std::string_view name;
  Value (*method)(Runtime&, const Value& self, const Args&);
};

std::span<const NamedMethod> text_methods();
std::span<const std::string_view> unsupported_text_methods();  // of Python's, those that nibble lacks

}  // namespace nibble::text::jinja
