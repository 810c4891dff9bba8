#include "engine/receipt.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/engine/tiny_model.h"

namespace nibble::engine {
namespace {

Receipt sample() {
  Receipt r;
  r.contract = "nc1";
  r.lane = "nvfp4";
  r.model_sha256 = std::string(64, 'a');
  r.model_file = "m.gguf";
  r.tokenizer_sha256 = std::string(64, 'b');
  r.request.prompt = {1, 2, 3};
  r.n_ctx = 512;
  r.request.max_tokens = 3;
  r.request.sampling = {.temperature = 0.7F, .top_k = 5, .top_p = 0.9F, .logit_bias = {{4, -1.5F}}, .seed = ~0ULL};
  r.request.stops = {"\n"};
  r.completion.tokens = {7, 8, 9};
  r.completion.token_logits = {0.1F, -3.25F, 1e-30F};
  r.completion.text = "h\xC3\xA9";
  r.completion.finish = FinishReason::kMaxTokens;
  r.completion.first_digest_position = 2;
  r.completion.position_digests = {"00", "11", "22"};
  r.completion.logits_digest = "22";
  return r;
}

TEST(Receipt, SurvivesTheFile) {
  const std::string path = nibble::testing::test_folder() + "/receipt.json";
  const Receipt written = sample();
  ASSERT_TRUE(write_receipt(written, path).ok());
  const auto read = read_receipt(path);
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_EQ(to_json(*read)["sampling"], to_json(written)["sampling"]);
  EXPECT_EQ(read->lane, written.lane);
  EXPECT_EQ(read->request.prompt, written.request.prompt);
  EXPECT_EQ(read->request.sampling.seed, written.request.sampling.seed);
  EXPECT_EQ(read->completion.token_logits, written.completion.token_logits);
  EXPECT_EQ(read->completion.text, written.completion.text);
  EXPECT_FALSE(first_difference(written.completion, read->completion).has_value());
}

TEST(Receipt, HasTheInterfaceKeys) {
  const auto json = to_json(sample());
  for (const char* key : {"contract", "model_sha256", "prompt_tokens", "tokens", "logits_digest", "position_digests"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
}

TEST(Receipt, FirstDifferenceNamesPositionTokenAndLogit) {
  const Completion recorded = sample().completion;
  Completion here = recorded;
  here.position_digests[1] = "xx";
  here.tokens[1] = 42;
  here.token_logits[1] = 2.5F;
  const auto difference = first_difference(recorded, here);
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->position, 3);
  EXPECT_NE(difference->description.find("token 8 with logit -3.25"), std::string::npos) << difference->description;
  EXPECT_NE(difference->description.find("token 42 with logit 2.5"), std::string::npos);

  Completion shorter = recorded;
  shorter.tokens.pop_back();
  shorter.token_logits.pop_back();
  shorter.position_digests.pop_back();
  EXPECT_TRUE(first_difference(recorded, shorter).has_value());
}

TEST(Receipt, NothingThatItRecordsMayBeForged) {
  const Completion honest = sample().completion;
  const auto forged = [&](auto change) {
    Completion recorded = honest;
    change(recorded);
    return first_difference(recorded, honest).has_value();
  };
  EXPECT_FALSE(forged([](Completion&) {}));
  EXPECT_TRUE(forged([](Completion& c) { c.logits_digest = std::string(64, '0'); }));
  EXPECT_TRUE(forged([](Completion& c) { c.token_logits[2] = 0; }));
  EXPECT_TRUE(forged([](Completion& c) { c.text = "other"; }));
  EXPECT_TRUE(forged([](Completion& c) { c.finish = FinishReason::kStopToken; }));
  EXPECT_TRUE(forged([](Completion& c) { c.first_digest_position = 99; }));
  EXPECT_FALSE(forged([](Completion& c) { c.finish = FinishReason::kCancelled; }));  // cut short by its reader
}

TEST(Receipt, AForgedTokenIsNamedWhereItStands) {
  const Completion honest = sample().completion;
  Completion recorded = honest;
  recorded.tokens[1] += 1;
  auto difference = first_difference(recorded, honest);
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->position, 3);
  EXPECT_NE(difference->description.find("recorded token 9 with"), std::string::npos) << difference->description;
  EXPECT_NE(difference->description.find("here token 8 with"), std::string::npos) << difference->description;

  recorded = honest;
  recorded.position_digests.push_back("more");
  difference = first_difference(recorded, honest);
  ASSERT_TRUE(difference.has_value());
  EXPECT_NE(difference->description.find("digests of 4 positions, here are 3"), std::string::npos)
      << difference->description;
}

TEST(Receipt, DifferencesInsideThePromptAreNamedAsSuch) {
  Completion recorded = sample().completion;
  recorded.first_digest_position = 0;
  recorded.position_digests = {"a", "b", "c", "d", "e"};  // two prompt positions before the last
  Completion here = recorded;
  here.position_digests[1] = "x";
  const auto difference = first_difference(recorded, here);
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->position, 1);
  EXPECT_NE(difference->description.find("prompt position 1"), std::string::npos) << difference->description;
}

TEST(Receipt, OtherFilesAreRefusedWithWords) {
  for (const char* text : {"", "{", "[]", "{}", "{\"nibble_receipt\": 2}", "{\"nibble_receipt\": 1}", "null",
                           "{\"nibble_receipt\": 1, \"contract\": 5}"}) {
    const auto read = receipt_from_json(text, "some.json");
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().file, "some.json");
    EXPECT_NE(read.error().message.find("not a receipt"), std::string::npos);
  }
}

// One reader would take the first, another the last.
TEST(Receipt, AKeyThatStandsTwiceIsRefused) {
  const std::string text = to_json(sample()).dump();
  ASSERT_TRUE(receipt_from_json(text, "r.json").ok());
  for (const auto& [key, extra] : std::map<std::string, std::string>{{"contract", R"({"contract":"nc1",)"},
                                                                     {"seed", R"("sampling":{"seed":1,)"}}) {
    std::string forged = text;
    const std::string place = key == "contract" ? "{" : R"("sampling":{)";
    forged.replace(forged.find(place), place.size(), extra);
    const auto read = receipt_from_json(forged, "r.json");
    ASSERT_FALSE(read.ok()) << forged;
    EXPECT_EQ(read.error().key, key);
    EXPECT_EQ(read.error().expected, "each key once");
  }
}

TEST(Receipt, EveryValueIsCheckedAndItsKeyNamed) {
  using Json = nlohmann::ordered_json;
  const Json whole = to_json(sample());
  ASSERT_TRUE(receipt_from_json(whole.dump(), "f").ok());
  const auto refused = [&whole](const char* pointer, const Json& value, const std::string& key) {
    Json json = whole;
    json[Json::json_pointer(pointer)] = value;
    const auto read = receipt_from_json(json.dump(), "f");
    ASSERT_FALSE(read.ok()) << pointer << " = " << value;
    EXPECT_EQ(read.error().key, key) << value;
    EXPECT_FALSE(read.error().found.empty());
    EXPECT_FALSE(read.error().expected.empty());
  };
  for (const auto& [key, value] : whole.items()) {
    if (key == "build" || key == "machine") continue;  // facts for people
    refused(("/" + key).c_str(), Json::parse("null"), key);
    if (key == "lane") continue;  // older receipts have none
    Json json = whole;
    json.erase(key);
    const auto read = receipt_from_json(json.dump(), "f");
    ASSERT_FALSE(read.ok()) << key;
    EXPECT_EQ(read.error().key, key);
  }
  for (const Json& value : {Json(1.5), Json(-1), Json(1ULL << 40), Json("1"), Json(true)}) {
    refused("/n_ctx", value, "n_ctx");
    refused("/max_tokens", value, "max_tokens");
    refused("/prompt_tokens/1", value, "prompt_tokens[1]");
    refused("/tokens/0", value, "tokens[0]");
    refused("/sampling/top_k", value, "sampling.top_k");
    if (value != Json(1ULL << 40)) {
      refused("/sampling/seed", value, "sampling.seed");
      refused("/first_digest_position", value, "first_digest_position");
    }
  }
  refused("/n_ctx", 0, "n_ctx");
  refused("/lane", "nvfp4\x1b[31m", "lane");
  refused("/sampling/seed", Json::parse("18446744073709551616"), "sampling.seed");
  refused("/sampling/penalty_window", -2, "sampling.penalty_window");
  for (const Json& value : {Json("0.5"), Json(1e300), Json(-0.5)}) {
    refused("/sampling/temperature", value, "sampling.temperature");
    refused("/sampling/top_p", value, "sampling.top_p");
  }
  for (const char* token : {"5abc", "not a token", "-1", "", "99999999999"}) {
    refused("/sampling/logit_bias", Json{{token, 1}}, "sampling.logit_bias");
  }
  refused("/sampling/logit_bias", Json{{"5", "x"}}, "sampling.logit_bias.5");
  refused("/sampling/typical_p", 0.9, "sampling.typical_p");  // a newer version's, which a replay would not follow
  refused("/stop", Json{"a", ""}, "stop");
  for (const Json& value :
       {Json("zz"), Json("3f80000"), Json("3f8000001"), Json("0x3f8000"), Json("-3f80000"), Json(1)}) {
    refused("/token_logits/1", value, "token_logits[1]");
  }
  refused("/token_logits", Json::array({"3f800000"}), "token_logits");
  refused("/finish_reason", "tired", "finish_reason");
}

}  // namespace
}  // namespace nibble::engine
