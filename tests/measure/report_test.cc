#include "measure/report.h"

#include <gtest/gtest.h>

#include "measure/svg.h"
#include "tests/engine/tiny_model.h"

namespace nibble::measure {
namespace {

using nibble::testing::write_tiny_model;

std::vector<TensorError> tiny_tensors() {
  ThreadPool pool(2);
  const auto checkpoint = Checkpoint::open(write_tiny_model({}, "report.gguf"));
  EXPECT_TRUE(checkpoint.ok());
  auto tensors = tensor_errors(nullptr, *checkpoint, pool);
  EXPECT_TRUE(tensors.ok());
  return std::move(*tensors);
}

TEST(TensorError, KnowsLayersAndKinds) {
  const auto tensors = tiny_tensors();
  ASSERT_EQ(tensors.size(), 14u);  // q k v output gate up down of two layers
  for (const TensorError& t : tensors) {
    EXPECT_EQ(t.name, "blk." + std::to_string(t.layer) + "." + t.kind + ".weight");
    std::uint64_t n = 0;
    for (const std::uint64_t count : t.stats.codes) n += count;
    EXPECT_GT(n, 0u);
  }
}

TEST(TensorError, ASourceThatIsNoSourceIsRefused) {
  ThreadPool pool(1);
  const auto checkpoint = Checkpoint::open(write_tiny_model({}, "report.gguf"));
  const auto errors = tensor_errors(&*checkpoint, *checkpoint, pool);  // its tensors are NVFP4 themselves
  ASSERT_FALSE(errors.ok());
  EXPECT_FALSE(errors.error().tensor.empty());
}

TEST(Report, HoldsAPictureForEachPart) {
  const auto tensors = tiny_tensors();
  const Json summary = {{"positions", 3}, {"a_perplexity", 2.0}, {"b_perplexity", 3.0},  {"mean_kl", 0.25},
                        {"p99_kl", 0.5},  {"max_kl", 1.0},       {"top1_agreement", 0.5}};
  Json entry = summary;
  entry["bands"] = {{"0-15", summary}};
  const Json quality = {{"what", "compare"},
                        {"a", {{"file", "source.gguf"}, {"contract", "float"}}},
                        {"b", {{"file", "other.gguf"}, {"contract", "nc1"}}},
                        {"classes", {{"pro<se", entry}}},
                        {"all", summary}};
  const Json speed = {{"what", "bench op"},
                      {"rows",
                       {{{"op", "gemv"},
                         {"format", "nvfp4"},
                         {"m", 1},
                         {"n", 64},
                         {"k", 32},
                         {"isa", "avx2"},
                         {"threads", 2},
                         {"share", 0.5},
                         {"limit", 40.0}}}}};
  const auto page =
      render_report({.title = "a & b", .tensors = tensors, .has_source = true, .quality = &quality, .speed = &speed});
  ASSERT_TRUE(page.ok()) << page.error().to_string();
  for (const char* part : {"a &amp; b", "Error by layer", "Codes", "Scales", "pro&lt;se", "0.25000 nats",
                           "source.gguf (float)", "50 % of 40.0 GB/s"}) {
    EXPECT_NE(page->find(part), std::string::npos) << part;
  }
  EXPECT_EQ(page->find("<script"), std::string::npos);
  EXPECT_EQ(page->find("http"), std::string::npos);  // nothing from elsewhere
}

// A file of the other lane has a page as well: what there is to show of it.
TEST(Report, ShowsWhatAFileWithoutNvfp4Holds) {
  const auto checkpoint = Checkpoint::open(
      write_tiny_model({.d_model = 256, .d_ff = 512, .head_dim = 64, .lane = Lane::kKquant}, "report.gguf"));
  ASSERT_TRUE(checkpoint.ok());
  const std::vector<TensorGroup> groups = tensor_groups(checkpoint->file());
  std::uint64_t n_tensors = 0, n_bytes = 0;
  for (const TensorGroup& group : groups) {
    n_tensors += group.n_tensors;
    n_bytes += group.bytes;
  }
  EXPECT_EQ(n_tensors, checkpoint->file().tensors().size());
  std::uint64_t all_bytes = 0;
  for (const TensorView& tensor : checkpoint->file().tensors()) all_bytes += tensor.bytes.size();
  EXPECT_EQ(n_bytes, all_bytes);
  EXPECT_EQ(groups[0].kind, "token_embd");
  EXPECT_EQ(groups[0].dtype, DType::kQ4_0);
  EXPECT_EQ(groups[0].bits_per_weight(), 4.5);
  const auto page = render_report({.title = "k", .contents = groups});
  ASSERT_TRUE(page.ok());
  for (const char* part : {"What the file holds", "<td>token_embd</td><td>Q4_0</td>", "No tensor of this file is NVFP4",
                           "Bits a weight", "4.50 bits"}) {
    EXPECT_NE(page->find(part), std::string::npos) << part;
  }
  EXPECT_EQ(page->find("How often each of the sixteen"), std::string::npos);
  EXPECT_EQ(report_pictures({.title = "k", .contents = groups})->size(), 1u);
}

TEST(Report, CountsTheScalesOfNvfp4WeightsAsTheirs) {
  const auto checkpoint = Checkpoint::open(write_tiny_model({}, "report.gguf"));
  ASSERT_TRUE(checkpoint.ok());
  for (const TensorGroup& group : tensor_groups(checkpoint->file())) {
    EXPECT_EQ(group.kind.find("nvfp4"), std::string::npos);
    if (group.dtype == DType::kNVFP4_E2M1) {
      EXPECT_EQ(group.n_tensors, 2u);
      EXPECT_NEAR(group.bits_per_weight(), 4.5, 0.02);  // and a tensor scale of 32 bits
    }
  }
}

TEST(Report, APictureAloneIsAnSvgWithItsOwnStyle) {
  const auto tensors = tiny_tensors();
  const auto pictures = report_pictures({.title = "m", .tensors = tensors});
  ASSERT_TRUE(pictures.ok());
  ASSERT_EQ(pictures->size(), 2u);  // codes and scales; nothing was said about errors, quality or speed
  for (const Picture& picture : *pictures) {
    const std::string svg = standalone(picture);
    EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ")) << svg.substr(0, 80);
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
    EXPECT_EQ(svg.find("<svg", 1), std::string::npos);
    EXPECT_NE(svg.find("--bar:"), std::string::npos);
  }
}

TEST(Report, RefusesReceiptsOfAnotherKindAndDamagedOnes) {
  const Json other = {{"what", "ppl"}}, empty = {{"what", "compare"}};
  EXPECT_FALSE(render_report({.title = "m", .quality = &other}).ok());
  EXPECT_FALSE(render_report({.title = "m", .quality = &empty}).ok());
  EXPECT_FALSE(render_report({.title = "m", .speed = &empty}).ok());
}

TEST(Svg, BarsOfNothingAreNoDivisionByZero) {
  EXPECT_NE(bar_chart({{.label = "x", .value = 0, .text = "0"}}).find("width=\"0.00\""), std::string::npos);
  EXPECT_EQ(cell_map({}).find("nan"), std::string::npos);
}

}  // namespace
}  // namespace nibble::measure
