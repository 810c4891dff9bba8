// How values become text: str(), repr() and JSON, character for character as Python writes them.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/runtime.h"

namespace nibble::text::jinja {

std::string to_str(Runtime& runtime, const Value& value);
std::string to_repr(Runtime& runtime, const Value& value);
std::string float_repr(double value);
// HTML escapes of markupsafe: & < > ' ".
std::string escape_markup(Runtime& runtime, const std::string& text);

struct JsonStyle {
  bool ascii_only = false;
  std::optional<std::string> indent = {};  // the text of one level; nothing means one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace nibble::text::jinja
