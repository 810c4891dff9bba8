// The seam: parsing, rendering, errors and limits. What the language means is in chat_template_language_test.cc.
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace nibble::text {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

const Json kConversation = Json::parse(R"({
  "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
  "tools": null, "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})");

std::string render(const std::string& source, const Json& context = kConversation, const RenderOptions& options = {}) {
  const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return "parse error: " + parsed.error().message;
  const Result<std::string> text = parsed->render(context, options);
  return text.ok() ? *text : "error: " + text.error().message;
}

TEST(ChatTemplate, RendersAConversation) {
  const std::string source =
      "{{ bos_token }}{% for m in messages %}\n<|{{ m.role }}|>{{ m['content'] }}<|end|>\n{% endfor %}\n"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}";
  EXPECT_EQ(render(source), "<s><|system|>Be brief.<|end|>\n<|user|>Hi<|end|>\n<|assistant|>");
}

TEST(ChatTemplate, KeepsItsSource) {
  const Result<ChatTemplate> parsed = ChatTemplate::parse("a{# b #}\n");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->source(), "a{# b #}\n");
}

TEST(ChatTemplate, ARaisedExceptionIsAnErrorWithItsText) {
  const Result<ChatTemplate> parsed = ChatTemplate::parse("a\n{{ raise_exception('roles must ' ~ 'alternate') }}");
  ASSERT_TRUE(parsed.ok());
  const Result<std::string> text = parsed->render(kConversation);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().message, "roles must alternate");
  EXPECT_THAT(text.error().hint, HasSubstr("line 2"));
}

TEST(ChatTemplate, SyntaxErrorsNameTheirLine) {
  EXPECT_EQ(render("a\n{% if x %}\nb"),
            "parse error: chat template, line 2: '{% endif %}' is missing for the block that starts here");
  EXPECT_THAT(render("\n\n{{ a b }}"), HasSubstr("line 3: expected '}}', got 'b'"));
  EXPECT_THAT(render("{% include 'x' %}"), HasSubstr("line 1: tag 'include' is not supported"));
  EXPECT_THAT(render("{% nonsense %}"), HasSubstr("line 1: unknown tag 'nonsense'"));
  EXPECT_THAT(render("\n{{ 'open"), HasSubstr("line 2: string without its closing quote"));
  EXPECT_THAT(render("{# open"), HasSubstr("line 1: comment without its closing"));
  EXPECT_THAT(render("{{ (1] }}"), HasSubstr("unexpected ']', expected ')'"));
  EXPECT_THAT(render("{{ 99999999999999999999 }}"), HasSubstr("does not fit 64 bits"));
}

TEST(ChatTemplate, RunTimeErrorsNameTheirLine) {
  EXPECT_THAT(render("\n{{ nowhere.at_all }}"), HasSubstr("error: chat template, line 2: 'nowhere' is undefined"));
  EXPECT_THAT(render("{{ messages.append(1) }}"), HasSubstr("is unsafe"));
  EXPECT_THAT(render("{{ 1 + 'a' }}"), HasSubstr("unsupported operand types for +: 'int' and 'str'"));
}

TEST(ChatTemplate, RefusesWhatIsNotText) {
  EXPECT_THAT(render("a\xff"), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(render("{{ x }}", Json{{"x", "\xc3"}}), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(render("{{ x }}", Json::array()), HasSubstr("must be an object"));
}

TEST(ChatTemplate, TimeIsGiven) {
  std::tm now = {};
  now.tm_year = 126;
  now.tm_mon = 2;
  now.tm_mday = 9;
  now.tm_hour = 15;
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y %I%p') }}", kConversation, {.now = now}), "09 Mar 2026 03PM");
}

TEST(ChatTemplate, LimitsHoldAgainstHostileTemplates) {
  const RenderOptions small = {.max_steps = 100'000, .max_bytes = 1 << 20};
  EXPECT_THAT(
      render("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", kConversation, small),
      HasSubstr("more steps than its limit"));
  EXPECT_THAT(render("{{ 'ab' * 999999999 }}", kConversation, small), HasSubstr("more memory than its limit"));
  EXPECT_THAT(render("{{ [0] * 999999999999 }}", kConversation, small), HasSubstr("more memory than its limit"));
  EXPECT_THAT(render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), HasSubstr("recursion is too deep"));
  EXPECT_THAT(render("{% set n = namespace() %}{% set n.a = n %}{{ n }}"), HasSubstr("recursion is too deep"));
  EXPECT_THAT(render("{% set n = namespace(a=[]) %}{% for i in range(999) %}{% set n.a = [n.a] %}{% endfor %}"),
              HasSubstr("nest deeper"));
  EXPECT_THAT(render("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"), HasSubstr("nest deeper"));
  EXPECT_THAT(render("{{ 1" + std::string(5000, '+') + "1 }}"), HasSubstr("nest deeper"));
  std::string sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) sum += "+1";
  EXPECT_THAT(render(sum + " }}"), HasSubstr("too deep"));
}

}  // namespace
}  // namespace nibble::text
