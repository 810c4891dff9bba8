#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "base/utf8.h"
#include "tests/text/small_vocabulary.h"
#include "text/tokenizer.h"

namespace nibble::text {
namespace {

Tokenizer make(Vocabulary vocabulary) {
  return std::move(Tokenizer::create(std::move(vocabulary))).value();
}

// Ids 0 to 255 of small_bpe() are the bytes.
std::vector<std::string> push_bytes(StreamDecoder& decoder, std::string_view bytes) {
  std::vector<std::string> parts;
  for (const char c : bytes) parts.push_back(decoder.push(static_cast<std::uint8_t>(c)));
  return parts;
}

TEST(StreamDecoder, TextComesOutWithTheByteThatCompletesIt) {
  const Tokenizer tokenizer = make(small_bpe());
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(push_bytes(decoder, "aé🦜"), (std::vector<std::string>{"a", "", "é", "", "", "", "🦜"}));
  EXPECT_EQ(decoder.flush(), "");
}

TEST(StreamDecoder, UnfinishedTailIsOneReplacement) {
  const Tokenizer tokenizer = make(small_bpe());
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(push_bytes(decoder, "\xF0\x9F\xA6"), (std::vector<std::string>{"", "", ""}));
  EXPECT_EQ(decoder.flush(), kReplacement);
  EXPECT_EQ(decoder.flush(), "");
}

TEST(StreamDecoder, BrokenSequenceIsReplacedAsSoonAsItIsKnown) {
  const Tokenizer tokenizer = make(small_bpe());
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(push_bytes(decoder,
                       "\xE2\x82"
                       "a\xFF"),
            (std::vector<std::string>{"", "", "\uFFFDa", "\uFFFD"}));
}

TEST(StreamDecoder, ControlTokenBetweenTheBytesOfACharacterDoesNotDisturbIt) {
  const Tokenizer tokenizer = make(small_bpe());
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(0xC3), "");
  EXPECT_EQ(decoder.push(*tokenizer.find("<|im_end|>")), "");
  EXPECT_EQ(decoder.push(0xA9), "é");
}

TEST(StreamDecoder, RandomIdsGiveValidUtf8AndTheSameAsTheWhole) {
  const Tokenizer tokenizer = make(small_bpe());
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::int32_t> ids(random() % 12);
    for (std::int32_t& id : ids) {
      id = static_cast<std::int32_t>(random() % 4 ? 0x80 + random() % 0x80 : random() % 260);
    }
    StreamDecoder decoder(tokenizer);
    std::string text;
    for (const std::int32_t id : ids) {
      const std::string part = decoder.push(id);
      ASSERT_EQ(find_invalid_utf8(part), std::string_view::npos);
      text += part;
    }
    text += decoder.flush();
    ASSERT_EQ(text, tokenizer.decode(ids));
  }
}

TEST(StreamDecoder, SpacePrefixIsTakenOffOnceAtTheStart) {
  const Tokenizer tokenizer = make(small_spm());
  const std::vector<std::int32_t> ids = {1, *tokenizer.find("▁he"), *tokenizer.find("▁he")};
  EXPECT_EQ(tokenizer.decode(ids), "he he");
  EXPECT_EQ(tokenizer.decode(std::span(ids).subspan(1), {.at_text_start = false}), " he he");
}

TEST(StreamDecoder, ByteTokensJoinToCharacters) {
  const Tokenizer tokenizer = make(small_spm());
  StreamDecoder decoder(tokenizer, {.at_text_start = false});
  EXPECT_EQ(decoder.push(*tokenizer.find("<0xC3>")), "");
  EXPECT_EQ(decoder.push(*tokenizer.find("<0xA9>")), "é");
}

}  // namespace
}  // namespace nibble::text
