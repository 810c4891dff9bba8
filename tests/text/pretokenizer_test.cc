#include "text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nibble::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> split(std::string_view rule, std::string_view text) {
  const auto pretokenizer = Pretokenizer::create(rule);
  EXPECT_TRUE(pretokenizer.ok());
  std::vector<std::string_view> pieces;
  EXPECT_TRUE(pretokenizer->split(text, &pieces).ok());
  return {pieces.begin(), pieces.end()};
}

TEST(Pretokenizer, Gpt2) {
  EXPECT_THAT(split("gpt-2", "I'm he's I'M 2024, ok"),
              ElementsAre("I", "'m", " he", "'s", " I", "'", "M", " 2024", ",", " ok"));
  EXPECT_THAT(split("gpt-2", "a   b\n\n c"), ElementsAre("a", "  ", " b", "\n\n", " c"));
}

TEST(Pretokenizer, SmollmTakesEveryDigitByItself) {
  EXPECT_THAT(split("smollm", "in 2024x"), ElementsAre("in", " ", "2", "0", "2", "4", "x"));
  EXPECT_THAT(split("smollm", "a  7"), ElementsAre("a", "  ", "7"));  // the space run ends its own stage: undivided
}

TEST(Pretokenizer, Llama3TakesDigitsByThree) {
  EXPECT_THAT(split("llama-bpe", "1234567 I'LLbe (x)\r\n\n y"),
              ElementsAre("123", "456", "7", " I", "'LL", "be", " (", "x", ")\r\n\n", " y"));
}

TEST(Pretokenizer, Qwen2) {
  EXPECT_THAT(split("qwen2", "12 !Ab  \n c"), ElementsAre("1", "2", " !", "Ab", "  \n", " c"));
  EXPECT_THAT(split("qwen2", "\tx"), ElementsAre("\tx"));
}

TEST(Pretokenizer, TekkenDividesAtCapitals) {
  EXPECT_THAT(split("tekken", "HelloWorld JSONData a//\n"), ElementsAre("Hello", "World", " JSONData", " a", "//\n"));
}

TEST(Pretokenizer, DefaultHasFourStages) {
  EXPECT_THAT(split("default", "a+=b 12345"), ElementsAre("a", "+=", "b", " ", "123", "45"));
  EXPECT_EQ(split("", "a+=b 12345"), split("default", "a+=b 12345"));
}

// Where Oniguruma, for which the expressions were written, and PCRE2 could differ.
TEST(Pretokenizer, SpaceIsWhiteSpaceAndCaseIsFolded) {
  EXPECT_THAT(split("gpt-2", "a\u180E\u180E!"),
              ElementsAre("a", "\u180E\u180E!"));  // not white space since Unicode 6.3
  EXPECT_THAT(split("gpt-2", "a\u0085\u2003b"), ElementsAre("a", "\u0085", "\u2003", "b"));
  EXPECT_THAT(split("qwen2", "it'\u017Fx"), ElementsAre("it", "'\u017F", "x"));  // the long s folds to s
}

TEST(Pretokenizer, UnknownNameIsAnErrorThatListsTheKnown) {
  const auto pretokenizer = Pretokenizer::create("nonesuch");
  ASSERT_FALSE(pretokenizer.ok());
  EXPECT_EQ(pretokenizer.error().found, "nonesuch");
  EXPECT_THAT(pretokenizer.error().expected, HasSubstr("gpt-2"));
  EXPECT_THAT(pretokenizer.error().expected, HasSubstr("tekken"));
}

}  // namespace
}  // namespace nibble::text
