// Chat templates: the Jinja that model files carry to turn a conversation into a prompt.
//
// Rendering gives the text that Python's jinja2 gives under the settings of transformers' apply_chat_template: an
// immutable sandbox, trim_blocks, lstrip_blocks, loop controls, {% generation %}, raise_exception, strftime_now, and
// tojson without HTML escapes. Integers have 64 bits. Whatever is not supported is an error, never a guess.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"

namespace nibble::text {

struct RenderOptions {
  // What strftime_now reads: the local time now, unless given.
  std::optional<std::tm> now = {};
  // Rendering takes up to 1 MiB of stack. A step is about one operation, or 64 bytes of text handled. A template beyond
  // a limit is an error.
  std::size_t max_steps = 20'000'000;
  std::size_t max_bytes = std::size_t{128} << 20;
};

class ChatTemplate {
 public:
  // Fails on a syntax error, a construct that is not supported, and text that is not UTF-8; the message names the
  // construct and its line.
  static Result<ChatTemplate> parse(std::string source);

  // `context` is an object: messages, and as the caller has them tools, documents, add_generation_prompt, bos_token,
  // eos_token and others. transformers passes tools and documents as null when there are none. When the template calls
  // raise_exception, the error's message is the template's own text.
  Result<std::string> render(const nlohmann::ordered_json& context, const RenderOptions& options = {}) const;

  const std::string& source() const { return source_; }

 private:
  struct Tree;
  ChatTemplate(std::string source, std::shared_ptr<const Tree> tree);

  std::string source_;
  std::shared_ptr<const Tree> tree_;
};

}  // namespace nibble::text
