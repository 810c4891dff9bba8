#include "measure/quality.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>

#include "tests/engine/tiny_model.h"

namespace nibble::measure {
namespace {

using nibble::testing::write_tiny_model;

TEST(Windows, CountEveryPositionOnce) {
  for (const std::size_t n : {2u, 7u, 8u, 9u, 40u, 41u}) {
    for (const int stride : {0, 1, 3, 8}) {
      const auto windows = plan_windows(n, {.window = 8, .stride = stride});
      ASSERT_TRUE(windows.ok());
      std::size_t counted = 0;
      for (const Window& w : *windows) {
        EXPECT_EQ(w.first_counted, counted);
        EXPECT_LE(w.begin, w.first_counted);
        EXPECT_GT(w.end, w.first_counted);
        EXPECT_LE(w.end - w.begin, 8u);
        counted = w.end;
      }
      EXPECT_EQ(counted, n);
    }
  }
  EXPECT_EQ(*plan_windows(10, {.window = 8, .stride = 4}), (std::vector<Window>{{0, 8, 0}, {4, 10, 8}}));
}

TEST(Windows, RefuseWhatLeavesTokensOut) {
  EXPECT_FALSE(plan_windows(10, {.window = 4, .stride = 5}).ok());
  EXPECT_FALSE(plan_windows(10, {.window = 1}).ok());
  EXPECT_FALSE(plan_windows(1, {.window = 4}).ok());
}

class Quality : public ::testing::Test {
 protected:
  static OpenSubject open(std::string_view settings) {
    const std::string path = write_tiny_model({}, "quality.gguf");
    auto subject = with_settings({.model = path}, settings);
    EXPECT_TRUE(subject.ok()) << (subject.ok() ? "" : subject.error().to_string());
    auto opened = open_subject(*subject);
    EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().to_string());
    return std::move(*opened);
  }
  const std::vector<Text> texts_ = {
      {"prose", "prose.txt", "", "All that glitters is not gold; often have you heard that told."},
      {"code", "code.txt", "", "for (int i = 0; i < 10; ++i) sum += a[i] * b[i];"}};
};

TEST_F(Quality, OneContractOnTwoBackendsIsNoDistance) {
  OpenSubject a = open("backend=reference"), b = open("isa=scalar,threads=2,chunk=3");
  const auto receipt = compare_quality(a, b, texts_, {.window = 16, .stride = 12});
  ASSERT_TRUE(receipt.ok()) << receipt.error().to_string();
  EXPECT_EQ((*receipt)["all"]["max_kl"], 0.0);
  EXPECT_EQ((*receipt)["all"]["max_drift"], 0.0);
  EXPECT_EQ((*receipt)["all"]["top1_agreement"], 1.0);
}

TEST_F(Quality, AModelThatIsWrittenToMeanwhileIsRefused) {
  OpenSubject a = open(""), b = open("");
  const std::string path = a.loaded->file().path();
  const auto receipt = compare_quality(a, b, texts_, {.window = 16}, [&](std::size_t, std::size_t) {
    const timespec times[] = {{0, UTIME_OMIT}, {1, 0}};  // as a write would
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  });
  ASSERT_FALSE(receipt.ok());
  EXPECT_NE(receipt.error().message.find("was written to while it was in use"), std::string::npos);
  OpenSubject c = open("");
  EXPECT_FALSE(measure_perplexity(c, texts_, {.window = 16}, [&](std::size_t, std::size_t) {
                 const timespec times[] = {{0, UTIME_OMIT}, {2, 0}};
                 EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
               }).ok());
}

// "BOS a a a | BOS a a a": the second window's token of the beginning stands in place of an a.
TEST_F(Quality, EveryWindowBeginsAsTheModelExpects) {
  const std::string path = write_tiny_model({.metadata =
                                                 [](GgufWriter& w) {
                                                   w.add_u32("tokenizer.ggml.bos_token_id", 256);
                                                   w.add_bool("tokenizer.ggml.add_bos_token", true);
                                                 }},
                                            "bos.gguf");
  OpenSubject subject = open_subject({.model = path}).value();
  const auto sum_of = [&](int n) {
    const Text text = {"text", "text.txt", "", std::string(n, 'a')};
    const Json receipt = measure_perplexity(subject, {&text, 1}, {.window = 4}).value();
    EXPECT_EQ(receipt["all"]["scored"], n);
    return receipt["all"]["nll"].get<double>() * n;
  };
  EXPECT_NEAR(sum_of(7), sum_of(4) + sum_of(3), 1e-9);  // sums of doubles in another order
}

TEST_F(Quality, FloatsAreADistanceAndClassesAddUp) {
  OpenSubject a = open("contract=float"), b = open("");
  EXPECT_EQ(a.loaded->contract, "float");
  const auto receipt = compare_quality(a, b, texts_, {.window = 32});
  ASSERT_TRUE(receipt.ok()) << receipt.error().to_string();
  const Json& all = (*receipt)["all"];
  EXPECT_GT(all["mean_kl"].get<double>(), 0);
  const Json &prose = (*receipt)["classes"]["prose"], &code = (*receipt)["classes"]["code"];
  const double n = prose["positions"].get<double>() + code["positions"].get<double>();
  EXPECT_EQ(all["positions"].get<double>(), n);
  EXPECT_EQ(all["scored"].get<double>(), n - 2);  // what follows the last token of a text is not known
  EXPECT_NEAR(all["mean_kl"].get<double>() * n,
              prose["mean_kl"].get<double>() * prose["positions"].get<double>() +
                  code["mean_kl"].get<double>() * code["positions"].get<double>(),
              1e-12);
  EXPECT_EQ((*receipt)["bands"].size(), 2u);  // 0-15 and 16-63
}

TEST_F(Quality, PerplexityOfBothCommandsAgrees) {
  OpenSubject a = open("contract=float"), b = open(""), alone = open("");
  const QualityOptions options = {.window = 24, .stride = 10};
  const auto both = compare_quality(a, b, texts_, options);
  const auto one = measure_perplexity(alone, texts_, options);
  ASSERT_TRUE(both.ok() && one.ok());
  EXPECT_DOUBLE_EQ((*both)["all"]["b_perplexity"].get<double>(), (*one)["all"]["perplexity"].get<double>());
  EXPECT_EQ((*both)["all"]["scored"], (*one)["all"]["scored"]);
}

TEST_F(Quality, OtherVocabulariesAreRefused) {
  OpenSubject a = open("");
  const std::string path = write_tiny_model(
      {.metadata = [](GgufWriter& w) { w.add_bool("tokenizer.ggml.add_space_prefix", true); }}, "other.gguf");
  auto b = open_subject({.model = path});
  ASSERT_TRUE(b.ok()) << b.error().to_string();
  EXPECT_FALSE(compare_quality(a, *b, texts_, {}).ok());
}

TEST(Gates, TakeTheWorstClass) {
  Json receipt = {{"all", {{"mean_kl", 0.2}, {"top1_agreement", 0.9}}},
                  {"classes",
                   {{"prose", {{"mean_kl", 0.1}, {"top1_agreement", 0.95}}},
                    {"code", {{"mean_kl", 0.3}, {"top1_agreement", 0.8}}}}}};
  Json copy = receipt;
  EXPECT_TRUE(apply_gates(std::vector<Gate>{{"mean_kl", 0.3, false}, {"top1_agreement", 0.8, true}}, copy));
  copy = receipt;
  EXPECT_FALSE(apply_gates(std::vector<Gate>{{"mean_kl", 0.29, false}}, copy));
  EXPECT_EQ(copy["gates"][0]["where"], "code");
  copy = receipt;
  EXPECT_FALSE(apply_gates(std::vector<Gate>{{"top1_agreement", 0.81, true}}, copy));
  receipt["all"]["mean_kl"] = std::nan("");
  EXPECT_FALSE(apply_gates(std::vector<Gate>{{"mean_kl", 100, false}}, receipt));
}

TEST(Texts, TwoOfOneNameAreRefused) {
  const std::vector<std::string> paths = {std::string(NIBBLE_SOURCE_DIR) + "/bench/texts/code.txt",
                                          std::string(NIBBLE_SOURCE_DIR) + "/bench/texts/code.txt"};
  EXPECT_FALSE(read_classes(paths).ok());
  EXPECT_FALSE(read_classes(std::vector<std::string>{"/nowhere.txt"}).ok());
}

}  // namespace
}  // namespace nibble::measure
