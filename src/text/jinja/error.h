// How the interpreter of chat templates fails inside: an exception, because a Python-like language raises from any
// depth of any expression. It never leaves src/text: ChatTemplate turns it into an Error.
#pragma once

#include <string>
#include <utility>

namespace nibble::text::jinja {

// `line` is 1-based; 0 means "where the interpreter is now", and whoever catches it fills it in.
struct TemplateError {
  std::string message;
  int line = 0;
  bool raised = false;  // by the template itself, with raise_exception()
};

[[noreturn]] inline void fail(std::string message, int line = 0) {
  throw TemplateError{std::move(message), line, false};
}

}  // namespace nibble::text::jinja
