#include "base/utf8.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

using Kind = Utf8Step::Kind;

// The definition itself: decode by hand, then ask whether the shortest form of a scalar value was used.
bool well_formed(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const std::size_t length = at(0) < 0x80 ? 1 : at(0) >> 5 == 6 ? 2 : at(0) >> 4 == 14 ? 3 : at(0) >> 3 == 30 ? 4 : 0;
  if (length == 0 || length != bytes.size()) return false;
  char32_t value = length == 1 ? at(0) : at(0) & (0x7F >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (at(i) >> 6 != 2) return false;
    value = value << 6 | (at(i) & 0x3F);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  return value >= kSmallest[length] && value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF);
}

TEST(Utf8, EveryCodePointSurvives) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(c, &text);
    ASSERT_TRUE(well_formed(text)) << static_cast<std::uint32_t>(c);
    const Utf8Step step = next_utf8(text);
    ASSERT_EQ(step.kind, Kind::kCharacter);
    ASSERT_EQ(step.length, text.size());
    ASSERT_EQ(decode_utf8(text), c);
  }
}

TEST(Utf8, EverySequenceOfThreeBytesIsJudgedByTheDefinition) {
  for (std::uint32_t bits = 0; bits < 1u << 24; ++bits) {
    const char bytes[] = {static_cast<char>(bits >> 16), static_cast<char>(bits >> 8), static_cast<char>(bits)};
    const std::string_view text(bytes, 3);
    const Utf8Step step = next_utf8(text);
    if (step.kind == Kind::kTruncated) {
      ASSERT_EQ(step.length, 3u) << bits;
      ASSERT_EQ(static_cast<unsigned char>(bytes[0]) >> 3, 30) << bits;
      continue;
    }
    bool expected = false;
    for (std::size_t length = 1; length <= 3; ++length) expected = expected || well_formed(text.substr(0, length));
    ASSERT_EQ(step.kind == Kind::kCharacter, expected) << bits;
    if (expected) {
      ASSERT_TRUE(well_formed(text.substr(0, step.length))) << bits;
    }
  }
}

TEST(Utf8, TruncatedMeansThatSomethingCouldFollow) {
  for (const std::string_view text : {"\xC3", "\xE2\x82", "\xF0", "\xF0\x9F", "\xF0\x9F\xA6", "\xF4\x8F\xBF"}) {
    EXPECT_EQ(next_utf8(text).kind, Kind::kTruncated);
    EXPECT_EQ(next_utf8(text).length, text.size());
  }
  for (const std::string_view text : {"\xC0", "\xFF", "\x80", "\xF5", "\xED\xA0", "\xE0\x80", "\xF4\x90", "\xC3("}) {
    EXPECT_EQ(next_utf8(text).kind, Kind::kMalformed);
    EXPECT_EQ(next_utf8(text).length, 1u);
  }
}

TEST(Utf8, MalformedTakesTheMaximalSubpart) {  // Unicode 15, table 3-8
  EXPECT_EQ(next_utf8("\xE1\x80\xE2").length, 2u);
  EXPECT_EQ(next_utf8("\xF1\x80\x80(").length, 3u);
  EXPECT_EQ(next_utf8("\xF1\x80\xC2").length, 2u);
}

TEST(Utf8, InvalidByteIsFoundAtEveryOffset) {
  for (std::size_t offset = 0; offset < 40; ++offset) {
    std::string text(40, 'a');
    EXPECT_EQ(find_invalid_utf8(text), std::string_view::npos);
    text[offset] = '\xFF';
    EXPECT_EQ(find_invalid_utf8(text), offset);
    text[offset] = '\xC3';  // its continuation is missing
    EXPECT_EQ(find_invalid_utf8(text), offset);
  }
}

}  // namespace
}  // namespace nibble
