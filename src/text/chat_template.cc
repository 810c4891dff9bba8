#include "text/chat_template.h"

#include <utility>

#include "base/utf8.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/library.h"
#include "text/jinja/parser.h"

namespace nibble::text {
namespace {

using jinja::Kind;
using jinja::Runtime;
using jinja::Value;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxSource = 1 << 20;  // public templates have up to 20 kB

Error to_error(const jinja::TemplateError& error) {
  const std::string line = std::to_string(error.line);
  if (error.raised) return Error{.message = error.message, .hint = "raised by line " + line + " of the chat template"};
  return Error{.message = "chat template, line " + line + ": " + error.message};
}

Value from_json(Runtime& runtime, const Json& json, int depth) {
  if (depth > Runtime::kMaxNesting) jinja::fail("the context nests too deeply");
  switch (json.type()) {
    case Json::value_t::null:
      return Value::none();
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_unsigned: {
      const auto number = json.get<std::uint64_t>();
      if (number > static_cast<std::uint64_t>(INT64_MAX)) jinja::fail("an integer of the context does not fit 64 bits");
      return Value::integer(static_cast<std::int64_t>(number));
    }
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      if (find_invalid_utf8(text) != std::string::npos) jinja::fail("a string of the context is not valid UTF-8");
      return runtime.string(text);
    }
    case Json::value_t::array: {
      std::vector<Value> items;
      for (const Json& item : json) items.push_back(from_json(runtime, item, depth + 1));
      return runtime.list(std::move(items));
    }
    case Json::value_t::object: {
      std::vector<jinja::Dict::Entry> entries;
      for (const auto& [key, value] : json.items()) {
        if (find_invalid_utf8(key) != std::string::npos) jinja::fail("a key of the context is not valid UTF-8");
        entries.emplace_back(runtime.string(key), from_json(runtime, value, depth + 1));
      }
      return runtime.dict(std::move(entries));
    }
    default:
      jinja::fail("the context holds binary data");
  }
}

std::tm local_time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm broken_down = {};
  localtime_r(&now, &broken_down);
  return broken_down;
}

}  // namespace

struct ChatTemplate::Tree {
  jinja::Block root;
};

ChatTemplate::ChatTemplate(std::string source, std::shared_ptr<const Tree> tree)
    : source_(std::move(source)), tree_(std::move(tree)) {}

Result<ChatTemplate> ChatTemplate::parse(std::string source) {
  if (source.size() > kMaxSource) {
    return Error{.message = "chat template: the text is too long",
                 .found = std::to_string(source.size()) + " bytes",
                 .expected = "at most " + std::to_string(kMaxSource) + " bytes"};
  }
  if (find_invalid_utf8(source) != std::string::npos)
    return Error{.message = "chat template: the text is not valid UTF-8"};
  try {
    auto tree = std::make_shared<Tree>(Tree{jinja::parse_template(source)});
    return ChatTemplate(std::move(source), std::move(tree));
  } catch (const jinja::TemplateError& error) {
    return to_error(error);
  }
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& context, const RenderOptions& options) const {
  if (!context.is_object()) {
    return Error{.message = "chat template: the context must be an object", .found = context.type_name()};
  }
  // Declared before every value: the values report to it when they are freed.
  Runtime runtime({options.max_steps, options.max_bytes}, options.now ? *options.now : local_time_now());
  try {
    auto globals = std::make_shared<jinja::Scope>(&runtime, nullptr);
    for (auto& [name, value] : jinja::make_globals(runtime)) globals->names[name] = std::move(value);
    for (const auto& [name, value] : context.items()) globals->names[name] = from_json(runtime, value, 1);
    auto root = std::make_shared<jinja::Scope>(&runtime, std::move(globals));
    return jinja::Interpreter(runtime, std::move(root)).render(tree_->root);
  } catch (jinja::TemplateError error) {
    if (error.line == 0) error.line = runtime.line;
    return to_error(error);
  }
}

}  // namespace nibble::text
