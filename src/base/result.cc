#include "base/result.h"

#include <string_view>

#include "base/hint.h"
#include "base/printable.h"

namespace nibble {

// The one place where a fault becomes text for people: what a file or a client says in it must not steer their
// terminal.
std::string Error::to_string() const {
  const auto shown = [](std::string_view field) { return printable(field, std::string_view::npos); };
  std::string text = shown(message);
  auto add = [&](std::string_view label, const std::string& field) {
    if (!field.empty()) text.append("\n  ").append(label).append(shown(field));
  };
  add("file:     ", file);
  add("tensor:   ", tensor);
  add("key:      ", key);
  add("found:    ", found);
  add("expected: ", expected);
  add("hint:     ", plain_hint(hint));
  return text;
}

}  // namespace nibble
