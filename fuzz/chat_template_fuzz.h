// The property of the chat template's fuzz target, apart from its entry point so that a test can replay the corpus.
// An input is the text of a template; after a zero byte may follow the JSON of a context.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "text/chat_template.h"

namespace nibble::text::fuzz {

inline const nlohmann::ordered_json& default_context() {
  static const auto kContext = nlohmann::ordered_json::parse(R"({
    "messages": [
      {"role": "system", "content": " Be brief.\n"},
      {"role": "user", "content": [{"type": "text", "text": "Gr\u00fc\u00dfe <\u4e16>"}, {"type": "image"}]},
      {"role": "assistant", "content": null, "reasoning_content": "so",
       "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1.5, "y": [true]}}}]},
      {"role": "tool", "content": "42"}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
    "documents": null, "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": -7, "x": 0.1})");
  return kContext;
}

inline void check_template(std::string_view input) {
  const std::size_t zero = input.find('\0');
  const auto parsed = ChatTemplate::parse(std::string(input.substr(0, zero)));
  if (!parsed.ok()) {
    NIBBLE_CHECK(!parsed.error().message.empty(), "an error without words");
    return;
  }
  nlohmann::ordered_json context = default_context();
  if (zero != std::string_view::npos) {
    const auto json = nlohmann::ordered_json::parse(input.substr(zero + 1), nullptr, false);
    if (!json.is_discarded()) context = json;
  }
  constexpr std::size_t kMaxBytes = 8 << 20;
  const RenderOptions options = {.now = std::tm{}, .max_steps = 100'000, .max_bytes = kMaxBytes};
  const auto text = parsed->render(context, options);
  const auto again = parsed->render(context, options);
  NIBBLE_CHECK(text.ok() == again.ok(), "two renderings differ");
  if (!text.ok()) return;
  NIBBLE_CHECK(*text == *again, "two renderings differ");
  NIBBLE_CHECK(text->size() <= kMaxBytes, "more text than the limit on memory");
  NIBBLE_CHECK(find_invalid_utf8(*text) == std::string::npos, "the text is not UTF-8");
}

}  // namespace nibble::text::fuzz
