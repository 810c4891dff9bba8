// What jinja2 finds out about names when it compiles a template.
#pragma once

#include "text/jinja/ast.h"

namespace nibble::text::jinja {

// Fills in Block::unset of every block. Throws TemplateError for a filter or test that does not exist, except inside of
// an {% if %} or an inline if: there it is an error only when it is reached, as templates ask for what may be missing.
void resolve_names(Block& root);

}  // namespace nibble::text::jinja
