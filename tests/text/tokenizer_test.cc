#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/text/small_vocabulary.h"

namespace nibble::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Tokenizer make(Vocabulary vocabulary) {
  auto tokenizer = Tokenizer::create(std::move(vocabulary));
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().to_string());
  return std::move(tokenizer).value();
}

// The tokens of a text, as the vocabulary writes them.
std::vector<std::string> tokens_of(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  const auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids.ok()) << (ids.ok() ? "" : ids.error().to_string());
  std::vector<std::string> tokens;
  if (ids.ok()) {
    for (const std::int32_t id : *ids) tokens.push_back(tokenizer.token_text(id));
  }
  return tokens;
}

std::string error_of(Vocabulary vocabulary) {
  const auto tokenizer = Tokenizer::create(std::move(vocabulary));
  return tokenizer.ok() ? "no error" : tokenizer.error().to_string();
}

TEST(ByteLevelBpe, MergesByRankThenFromTheLeft) {
  const Tokenizer tokenizer = make(small_bpe());
  EXPECT_THAT(tokens_of(tokenizer, "hello"), ElementsAre("hell", "o"));
  EXPECT_THAT(tokens_of(tokenizer, "lll"), ElementsAre("ll", "l"));
  EXPECT_THAT(tokens_of(tokenizer, "llll"), ElementsAre("ll", "ll"));
  EXPECT_THAT(tokens_of(tokenizer, "he he"), ElementsAre("he", "Ġ", "he"));
  EXPECT_THAT(tokens_of(tokenizer, ""), IsEmpty());
}

TEST(ByteLevelBpe, MergeWhoseSymbolsHaveChangedIsForgotten) {
  Vocabulary vocabulary = small_bpe();
  for (const char* token : {"bc", "ab"}) {
    vocabulary.tokens.push_back(token);
    vocabulary.token_types.push_back(1);
  }
  vocabulary.merges = {"b c", "a b"};
  EXPECT_THAT(tokens_of(make(vocabulary), "abcab"), ElementsAre("a", "bc", "ab"));
}

TEST(ByteLevelBpe, WholePieceWinsWhereTheFamilyIgnoresMerges) {
  Vocabulary vocabulary = small_bpe();
  vocabulary.tokens.push_back("olleh");
  vocabulary.token_types.push_back(1);
  vocabulary.add_bos = false;
  EXPECT_THAT(tokens_of(make(vocabulary), "olleh"), ElementsAre("o", "ll", "e", "h"));
  vocabulary.pre = "llama-bpe";
  EXPECT_THAT(tokens_of(make(vocabulary), "olleh"), ElementsAre("olleh"));
}

TEST(ByteLevelBpe, MissingByteIsAnErrorUnlessDropped) {
  Vocabulary vocabulary = small_bpe();
  vocabulary.tokens[4] = "absent";  // was the character of byte 0x04
  const Tokenizer tokenizer = make(vocabulary);
  const auto ids = tokenizer.encode("he\x04");
  ASSERT_FALSE(ids.ok());
  EXPECT_THAT(ids.error().found, HasSubstr("0x04 at offset 2"));
  EXPECT_THAT(tokens_of(tokenizer, "\x04he\x04", {.drop_unencodable = true}), ElementsAre("he"));
}

TEST(ByteLevelBpe, OneLetterAMillionTimesIsQuick) {
  const Tokenizer tokenizer = make(small_bpe());
  const auto ids = tokenizer.encode(std::string(1'000'000, 'l'));
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->size(), 500'000u);
}

TEST(SpecialTokens, ControlTokensNeedParseSpecial) {
  const Tokenizer tokenizer = make(small_bpe());
  EXPECT_THAT(tokens_of(tokenizer, "he<|im_end|>", {.parse_special = true}), ElementsAre("he", "<|im_end|>"));
  EXPECT_THAT(tokens_of(tokenizer, "<|im_end|>"), testing::Not(testing::Contains("<|im_end|>")));
}

TEST(SpecialTokens, LongestOfThoseThatBeginLeftmost) {
  const Tokenizer tokenizer = make(small_bpe());
  EXPECT_THAT(tokens_of(tokenizer, "he<tool><tool>>"), ElementsAre("he", "<tool>", "<tool>>"));
}

TEST(SpecialTokens, BosAndEosByTheFilesRule) {
  Vocabulary vocabulary = small_bpe();
  vocabulary.add_bos = vocabulary.add_eos = true;
  const Tokenizer tokenizer = make(vocabulary);
  EXPECT_THAT(tokens_of(tokenizer, "he"), ElementsAre("<|endoftext|>", "he", "<|im_end|>"));
  EXPECT_THAT(tokens_of(tokenizer, "he", {.add_special = false}), ElementsAre("he"));
  vocabulary.add_bos = vocabulary.add_eos = std::nullopt;
  EXPECT_THAT(tokens_of(make(vocabulary), "he"), ElementsAre("he"));
  vocabulary.pre = "llama-bpe";
  EXPECT_THAT(tokens_of(make(vocabulary), "he"), ElementsAre("<|endoftext|>", "he"));
}

TEST(SpecialTokens, EndOfGeneration) {
  const Tokenizer tokenizer = make(small_bpe());
  EXPECT_TRUE(tokenizer.is_eog(*tokenizer.find("<|im_end|>")));
  EXPECT_TRUE(tokenizer.is_eog(*tokenizer.find("<|endoftext|>")));
  EXPECT_FALSE(tokenizer.is_eog(*tokenizer.find("<tool>")));
  EXPECT_FALSE(tokenizer.is_eog(*tokenizer.find("he")));
}

TEST(SpecialTokens, WholePieceIsNoWayToAControlToken) {
  Vocabulary vocabulary = small_bpe();
  vocabulary.pre = "llama-bpe";
  vocabulary.add_bos = false;
  vocabulary.tokens.push_back("stop");
  vocabulary.token_types.push_back(static_cast<std::int32_t>(TokenType::kControl));
  const Tokenizer tokenizer = make(vocabulary);
  EXPECT_THAT(tokens_of(tokenizer, "stop"), ElementsAre("s", "t", "o", "p"));
  EXPECT_THAT(tokens_of(tokenizer, "stop", {.parse_special = true}), ElementsAre("stop"));
}

TEST(SpecialTokens, EndOfAMessageIsNotTheEndWhereToolsAreCalledByTokens) {
  Vocabulary vocabulary = small_bpe();
  const auto add_control = [&](const char* text) {
    vocabulary.tokens.push_back(text);
    vocabulary.token_types.push_back(static_cast<std::int32_t>(TokenType::kControl));
  };
  add_control("<|end|>");
  add_control("<|return|>");
  const auto ends = [&] {
    const Tokenizer tokenizer = make(vocabulary);
    return tokenizer.is_eog(*tokenizer.find("<|end|>"));
  };
  EXPECT_TRUE(ends());
  add_control("<|call|>");
  EXPECT_FALSE(ends());
}

TEST(Encode, InvalidUtf8IsAnErrorWithItsOffset) {
  const Tokenizer tokenizer = make(small_bpe());
  const auto ids = tokenizer.encode("he\xC3(");
  ASSERT_FALSE(ids.ok());
  EXPECT_THAT(ids.error().found, HasSubstr("0xC3 at offset 2"));
}

TEST(Encode, TextBeyondAnyContextIsRefused) {
  const auto ids = make(small_bpe()).encode(std::string((std::size_t{64} << 20) + 1, ' '));
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().message, "the text is too long");
}

TEST(Decode, ControlTokensRenderAsNothingByDefault) {
  const Tokenizer tokenizer = make(small_bpe());
  const auto ids = tokenizer.encode("he<|im_end|><tool>", {.parse_special = true});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(tokenizer.decode(*ids), "he<tool>");
  EXPECT_EQ(tokenizer.decode(*ids, {.render_control = true}), "he<|im_end|><tool>");
}

TEST(Spm, BestScoreFirstWithSpacePrefixAndByteFallback) {
  const Tokenizer tokenizer = make(small_spm());
  EXPECT_THAT(tokens_of(tokenizer, "hello"), ElementsAre("<s>", "▁hell", "o"));
  EXPECT_THAT(tokens_of(tokenizer, "é"), ElementsAre("<s>", "▁", "<0xC3>", "<0xA9>"));
  EXPECT_THAT(tokens_of(tokenizer, "h  h", {.add_special = false}), ElementsAre("▁", "h", "▁", "▁", "h"));
  for (const char* text : {"hello hell", " he", "  he  ", "é\n🦜 ", ""}) {
    const auto ids = tokenizer.encode(text);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(tokenizer.decode(*ids), text);
  }
}

TEST(Spm, OfEqualScoresTheLeftmost) {
  const Tokenizer tokenizer = make(small_spm());
  EXPECT_THAT(tokens_of(tokenizer, "olll"), ElementsAre("<s>", "▁", "o", "ll", "l"));
}

TEST(Spm, MergeWhoseSymbolsHaveChangedIsForgotten) {
  Vocabulary vocabulary = small_spm();
  for (const char* token : {"os", "so"}) {  // "so" is worse: in "sos" it is a candidate that "os" overtakes
    vocabulary.tokens.push_back(token);
    vocabulary.token_types.push_back(1);
    vocabulary.scores.push_back(vocabulary.scores.back() - 1);
  }
  EXPECT_THAT(tokens_of(make(vocabulary), "sos", {.add_special = false}), ElementsAre("▁", "s", "os"));
}

TEST(Spm, BosAndEosHaveTheirConventionalPlaces) {
  Vocabulary vocabulary = small_spm();
  vocabulary.bos_id = vocabulary.eos_id = std::nullopt;
  EXPECT_EQ(make(vocabulary).bos(), 1);
  EXPECT_EQ(make(vocabulary).eos(), 2);
  EXPECT_TRUE(make(vocabulary).is_eog(2));
  vocabulary.tokens[1] = "<start>";
  EXPECT_THAT(error_of(vocabulary), HasSubstr("tokenizer.ggml.bos_token_id"));
}

TEST(Spm, TokensMayJoinWords) {
  Vocabulary vocabulary = small_spm();
  EXPECT_THAT(tokens_of(make(vocabulary), "o h", {.add_special = false}), ElementsAre("▁", "o", "▁", "h"));
  vocabulary.tokens.push_back("o▁");
  vocabulary.token_types.push_back(1);
  vocabulary.scores.push_back(0);
  EXPECT_THAT(tokens_of(make(vocabulary), "o h", {.add_special = false}), ElementsAre("▁", "o▁", "h"));
}

TEST(Spm, SpacePrefixFollowsEverySpecialToken) {
  Vocabulary vocabulary = small_spm();
  const EncodeOptions options{.parse_special = true, .add_special = false};
  EXPECT_THAT(tokens_of(make(vocabulary), "h</s>h", options), ElementsAre("▁", "h", "</s>", "▁", "h"));
  vocabulary.add_space_prefix = false;
  EXPECT_THAT(tokens_of(make(vocabulary), "h</s>h", options), ElementsAre("h", "</s>", "h"));
}

TEST(Spm, PlainTextNeverBecomesAControlToken) {
  const Tokenizer tokenizer = make(small_spm());
  EXPECT_THAT(tokens_of(tokenizer, "<s>", {.add_special = false}), testing::Not(testing::Contains("<s>")));
  EXPECT_THAT(tokens_of(tokenizer, "<s>he", {.parse_special = true, .add_special = false}), ElementsAre("<s>", "▁he"));
}

TEST(HostileVocabulary, EveryFaultIsNamed) {
  const auto with = [](auto change) {
    Vocabulary vocabulary = small_bpe();
    change(vocabulary);
    return error_of(vocabulary);
  };
  EXPECT_THAT(with([](auto& v) { v.model = "bert"; }), HasSubstr("tokenizer.ggml.model"));
  EXPECT_THAT(with([](auto& v) { v.pre = "nonesuch"; }), HasSubstr("llama-bpe"));
  EXPECT_THAT(with([](auto& v) { v.tokens.clear(); }), HasSubstr("no tokens"));
  EXPECT_THAT(with([](auto& v) { v.tokens[7] = v.tokens[8]; }), HasSubstr("ids 7 and 8"));
  EXPECT_THAT(with([](auto& v) { v.tokens[7] = "\xFF"; }), HasSubstr("token 7 is not valid UTF-8"));
  EXPECT_THAT(with([](auto& v) { v.token_types.pop_back(); }), HasSubstr("tokenizer.ggml.token_type"));
  EXPECT_THAT(with([](auto& v) { v.token_types[3] = 9; }), HasSubstr("token 3 has an unknown type"));
  EXPECT_THAT(with([](auto& v) { v.scores = {1.0f}; }), HasSubstr("tokenizer.ggml.scores"));
  EXPECT_THAT(with([](auto& v) { v.merges.clear(); }), HasSubstr("without merges"));
  EXPECT_THAT(with([](auto& v) { v.merges[0] = "he"; }), HasSubstr("merge 0 has no space"));
  EXPECT_THAT(with([](auto& v) { v.merges[1] = "h q"; }), HasSubstr("merge 1 names an unknown token"));
  EXPECT_THAT(with([](auto& v) { v.merges.push_back(v.merges[0]); }), HasSubstr("is listed twice"));
  EXPECT_THAT(with([](auto& v) { v.token_types[static_cast<std::size_t>(small_bpe_id("he"))] = 3; }),
              HasSubstr("makes a control token"));
  EXPECT_THAT(with([](auto& v) { v.bos_id = 1'000'000; }), HasSubstr("tokenizer.ggml.bos_token_id"));
  EXPECT_THAT(with([](auto& v) { v.eos_id = -1; }), HasSubstr("tokenizer.ggml.eos_token_id"));
  EXPECT_THAT(with([](auto& v) { v.add_bos = true, v.bos_id.reset(); }), HasSubstr("there is none"));
  EXPECT_THAT(with([](auto& v) { v.tokens.back().assign(2000, 'x'); }), HasSubstr("too long"));
}

TEST(HostileVocabulary, SpmFaultsAreNamed) {
  Vocabulary vocabulary = small_spm();
  vocabulary.scores.clear();
  EXPECT_THAT(error_of(vocabulary), HasSubstr("tokenizer.ggml.scores"));
  vocabulary = small_spm();
  vocabulary.scores[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(error_of(vocabulary), HasSubstr("score of token 5"));
  vocabulary = small_spm();
  vocabulary.tokens[3] = "<0xG0>";
  EXPECT_THAT(error_of(vocabulary), HasSubstr("names no byte"));
}

TEST(Digest, ChangesWithEveryField) {
  const std::string original = make(small_bpe()).digest();
  EXPECT_EQ(original.size(), 64u);
  EXPECT_EQ(original, make(small_bpe()).digest());
  const auto changed = [](auto change) {
    Vocabulary vocabulary = small_bpe();
    change(vocabulary);
    return digest(vocabulary);
  };
  EXPECT_NE(original, changed([](auto& v) { v.pre = "qwen2"; }));
  EXPECT_NE(original, changed([](auto& v) { std::swap(v.tokens[0], v.tokens[1]); }));
  EXPECT_NE(original, changed([](auto& v) { v.token_types[0] = 4; }));
  EXPECT_NE(original, changed([](auto& v) { v.merges.pop_back(); }));
  EXPECT_NE(original, changed([](auto& v) { v.bos_id.reset(); }));
  EXPECT_NE(original, changed([](auto& v) { v.add_bos = false; }));
  EXPECT_NE(original, changed([](auto& v) { v.scores.assign(v.tokens.size(), 0.0f); }));
}

}  // namespace
}  // namespace nibble::text
