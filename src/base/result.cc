#include "base/result.h"

namespace nibble {

std::string Error::to_string() const {
  std::string text = message;
  auto add = [&text](const char* label, const std::string& field) {
    if (!field.empty()) text += std::string("\n  ") + label + field;
  };
  add("file:     ", file);
  add("tensor:   ", tensor);
  add("key:      ", key);
  add("found:    ", found);
  add("expected: ", expected);
  add("hint:     ", hint);
  return text;
}

}  // namespace nibble
