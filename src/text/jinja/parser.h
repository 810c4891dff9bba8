// From the text of a template to its tree.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace nibble::text::jinja {

// Throws TemplateError, which names what is wrong or not supported, and its line. `source` is valid UTF-8.
Block parse_template(std::string_view source);

}  // namespace nibble::text::jinja
