// Replays tests/golden/chat_templates.json, which jinja2 wrote (tests/text/chat_template_golden.py): nibble's own
// templates, which use every construct, over several conversations; and snippets about the corners of the language.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "text/chat_template.h"

namespace nibble::text {
namespace {

using Json = nlohmann::ordered_json;

std::string read_file(const std::string& name) {
  std::ifstream file(NIBBLE_SOURCE_DIR "/tests/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

const Json& golden() {
  static const Json kGolden = Json::parse(read_file("golden/chat_templates.json"));
  return kGolden;
}

// The moment that the golden file was written for: NOW in chat_template_reference.py.
std::tm golden_time() {
  std::tm time = {};
  time.tm_year = 126;
  time.tm_mon = 2;
  time.tm_mday = 9;
  time.tm_hour = 7;
  time.tm_min = 5;
  time.tm_sec = 2;
  time.tm_wday = 1;
  time.tm_yday = 67;
  return time;
}

// "" when the template does what the case says, else words.
std::string judge(const std::string& source, const Json& context, const Json& expected) {
  const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  const Result<std::string> text =
      parsed.ok() ? parsed->render(context, {.now = golden_time()}) : Result<std::string>(parsed.error());
  if (text.ok() && !expected.contains("text")) return "rendered '" + *text + "' instead of " + expected.dump();
  if (text.ok()) return *text == expected["text"].get_ref<const std::string&>() ? "" : "rendered '" + *text + "'";
  if (expected.contains("text")) return text.error().message;
  if (!expected.contains("raised")) return "";
  return text.error().message == expected["raised"].get_ref<const std::string&>() ? "" : text.error().message;
}

TEST(ChatTemplateGolden, OwnTemplates) {
  std::size_t n_texts = 0;
  for (const Json& expected : golden().at("cases")) {
    const std::string file = expected.at("file");
    const Json& context = golden().at("contexts").at(expected.at("context").get<std::string>());
    EXPECT_EQ(judge(read_file("text/templates/" + file), context, expected), "")
        << file << " x " << expected.at("context") << ": " << expected.value("text", "");
    n_texts += expected.contains("text") ? 1 : 0;
  }
  EXPECT_GE(golden().at("cases").size(), 180u);
  EXPECT_GE(n_texts, 120u);
}

TEST(ChatTemplateGolden, Snippets) {
  for (const Json& expected : golden().at("snippets")) {
    const std::string source = expected.at("template");
    EXPECT_EQ(judge(source, golden().at("variables"), expected), "") << source << "\nexpected " << expected.dump();
  }
  EXPECT_GE(golden().at("snippets").size(), 400u);
}

TEST(ChatTemplateGolden, AChangedTextIsNoticed) {
  const Json expected = {{"text", "a"}};
  EXPECT_EQ(judge("a", Json::object(), expected), "");
  EXPECT_NE(judge("b", Json::object(), expected), "");
  EXPECT_NE(judge("{{ 1 / 0 }}", Json::object(), expected), "");
  EXPECT_NE(judge("a", Json::object(), Json{{"error", "TypeError"}}), "");
  EXPECT_NE(judge("{{ raise_exception('x') }}", Json::object(), Json{{"raised", "y"}}), "");
}

}  // namespace
}  // namespace nibble::text
