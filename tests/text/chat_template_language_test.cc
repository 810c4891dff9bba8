// One test a construct of the language, with expectations from Jinja's documentation. The corners, and whole templates,
// are in chat_template_golden_test.cc with what jinja2 made of them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "text/chat_template.h"

namespace nibble::text {
namespace {

using Json = nlohmann::ordered_json;

std::string render(const std::string& source, const Json& context = Json::object()) {
  const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return "error: " + parsed.error().message;
  const Result<std::string> text = parsed->render(context);
  return text.ok() ? *text : "error: " + text.error().message;
}

TEST(ChatTemplateLanguage, TrimBlocksTakesTheNewlineAfterATagOnly) {
  EXPECT_EQ(render("{% if 1 %}\na\n{% endif %}\nb\n{{ 1 }}\nc"), "a\nb\n1\nc");
  EXPECT_EQ(render("{# c #}\na"), "a");
  EXPECT_EQ(render("{% if 1 +%}\na{% endif %}"), "\na");
}

TEST(ChatTemplateLanguage, LstripBlocksTakesBlanksBeforeATagOnItsLine) {
  EXPECT_EQ(render("  {% if 1 %}a{% endif %}"), "a");
  EXPECT_EQ(render("x  {% if 1 %}a{% endif %}"), "x  a");
  EXPECT_EQ(render("  {%+ if 1 %}a{% endif %}"), "  a");
  EXPECT_EQ(render("  {{ 1 }}"), "  1");
}

TEST(ChatTemplateLanguage, MinusTakesAllWhitespace) {
  EXPECT_EQ(render("a \n {{- 1 -}} \n b"), "a1b");
  EXPECT_EQ(render("a {#- c -#} b"), "ab");
}

TEST(ChatTemplateLanguage, OneNewlineAtTheEndGoes) {
  EXPECT_EQ(render("a\n"), "a");
  EXPECT_EQ(render("a\n\n"), "a\n");
  EXPECT_EQ(render("a\r\n\r\nb\r"), "a\n\nb");
}

TEST(ChatTemplateLanguage, Raw) {
  EXPECT_EQ(render("{% raw %}{{ x }} {% y %}{% endraw %}"), "{{ x }} {% y %}");
}

TEST(ChatTemplateLanguage, ValuesPrintAsInPython) {
  EXPECT_EQ(render("{{ true }} {{ none }} {{ 1.0 }} {{ 1e16 }} {{ [1, 'a', none] }} {{ {'k': \"it's\"} }} {{ (1,) }}"),
            "True None 1.0 1e+16 [1, 'a', None] {'k': \"it's\"} (1,)");
}

TEST(ChatTemplateLanguage, ArithmeticAsInPython) {
  EXPECT_EQ(render("{{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 3 }} {{ 'ab' * 2 }} {{ [1] + [2] }} {{ 1 ~ 2 }}"),
            "3.5 -4 2 8 abab [1, 2] 12");
}

TEST(ChatTemplateLanguage, ComparisonsChainAndLogicGivesOperands) {
  EXPECT_EQ(
      render("{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' in 'cat' }} {{ 1 not in [1] }} {{ '' or 'x' }} {{ 1 and 2 }}"),
      "True False True False x 2");
}

TEST(ChatTemplateLanguage, SubscriptsAndSlicesCountCharacters) {
  EXPECT_EQ(render("{{ s[1] }} {{ s[-1] }} {{ s[1:3] }} {{ s[::-1] }} {{ s|length }}", {{"s", "añ世😀"}}),
            "ñ 😀 ñ世 😀世ña 4");
}

TEST(ChatTemplateLanguage, AttributesAndItems) {
  EXPECT_EQ(render("{{ m.role }}{{ m['role'] }}{{ m.items() }}{{ m.get('x', 1) }}", {{"m", {{"role", "u"}}}}),
            "uudict_items([('role', 'u')])1");
}

TEST(ChatTemplateLanguage, UndefinedPrintsNothingButHasNoAttributes) {
  EXPECT_EQ(render("[{{ x }}{{ m.y }}]{{ x is defined }}", {{"m", Json::object()}}), "[]False");
  EXPECT_EQ(render("{{ x.y }}"), "error: chat template, line 1: 'x' is undefined");
}

TEST(ChatTemplateLanguage, ForWithElseFilterAndLoop) {
  EXPECT_EQ(
      render("{% for i in [1, 2, 3, 4] if i is even %}{{ loop.index }}:{{ i }}{{ ', ' if not loop.last }}{% endfor %}"),
      "1:2, 2:4");
  EXPECT_EQ(render("{% for i in [] %}x{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(render("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif "
                   "%}{{ i }}{% endfor %}"),
            "023");
}

TEST(ChatTemplateLanguage, AssignmentsInALoopEndWithItsTurn) {
  EXPECT_EQ(render("{% set x = 0 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}"), "120");
  EXPECT_EQ(render("{% set n = namespace(x=0) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}"),
            "3");
}

TEST(ChatTemplateLanguage, MacrosAndCallBlocks) {
  EXPECT_EQ(render("{% macro f(a, b='y') %}({{ a }}{{ b }}){% endmacro %}{{ f('x') }}{{ f(b=1, a=2) }}"), "(xy)(21)");
  EXPECT_EQ(render("{% macro f() %}<{{ caller(7) }}>{% endmacro %}{% call(x) f() %}{{ x }}{% endcall %}"), "<7>");
}

TEST(ChatTemplateLanguage, SetBlocksFilterBlocksAndWith) {
  EXPECT_EQ(render("{% set x | upper %}ab{% endset %}{{ x }}{% filter replace('a', 'b') %}aa{% endfilter %}{% with y = "
                   "1 %}{{ y }}{% endwith %}"),
            "ABbb1");
}

TEST(ChatTemplateLanguage, GenerationBlocksRenderTheirBody) {
  EXPECT_EQ(render("{% generation %}a{{ 1 }}{% endgeneration %}"), "a1");
}

TEST(ChatTemplateLanguage, JsonAsTransformersWritesIt) {
  EXPECT_EQ(render("{{ x | tojson }}", {{"x", {{"a", "<é>\n"}, {"b", {1, 2.0, nullptr}}}}}),
            R"({"a": "<é>\n", "b": [1, 2.0, null]})");
  EXPECT_EQ(render("{{ [1] | tojson(indent=2) }}"), "[\n  1\n]");
}

TEST(ChatTemplateLanguage, ListsAndDictsCannotBeChanged) {
  EXPECT_EQ(render("{{ [].append(1) }}"),
            "error: chat template, line 1: access to attribute 'append' of 'list' object is unsafe.");
}

TEST(ChatTemplateLanguage, AMissingFilterIsAnErrorWhereItWouldRun) {
  EXPECT_EQ(render("\n{{ 1 | nope }}"), "error: chat template, line 2: no filter named 'nope'");
  EXPECT_EQ(render("{% if false %}{{ 1 | nope }}{% endif %}a"), "a");
  EXPECT_EQ(render("{{ 1 | pprint }}"), "error: chat template, line 1: filter 'pprint' is not supported");
}

TEST(ChatTemplateLanguage, RareCornersAreThoseOfJinja2) {
  EXPECT_EQ(render("{{ n[1:2] }}", {{"n", 5}}), "error: chat template, line 1: 'int' object cannot be sliced");
  EXPECT_EQ(render("{% for i in [1, 2] %}{% continue %}{% else %}E{% endfor %}"), "E");
  EXPECT_EQ(render("{{ 9007199254740993 / 3 }} {{ 9223372036854775807 / 3 }}"),
            "3002399751580331.0 3.0744573456182584e+18");
  EXPECT_EQ(render("{{ (5 | map('upper')) is defined }}"), "True");
  EXPECT_EQ(render("{{ 5 | map('upper') | list }}"), "error: chat template, line 1: 'int' object is not iterable");
}

TEST(ChatTemplateLanguage, SafeTextEscapesWhatIsAddedToIt) {
  EXPECT_EQ(render("{{ '<' + '<' }}{{ ('<' | safe) + '<' }}{{ '<' | e }}"), "<<<&lt;&lt;");
}

}  // namespace
}  // namespace nibble::text
