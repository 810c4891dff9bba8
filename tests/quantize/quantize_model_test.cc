#include "quantize/quantize_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/sha256.h"
#include "io/checkpoint.h"
#include "tests/base/file_size_limit.h"
#include "tests/base/temp_dir.h"
#include "tests/io/gguf_builder.h"

namespace nibble {
namespace {

using testing::Bytes;
using testing::bytes_of_floats;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::TempDir;

std::vector<float> random_weights(std::size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> out(n);
  for (float& value : out) value = normal(generator);
  return out;
}

GgufBuilder small_model() {
  GgufBuilder model;
  model.add_string("general.architecture", "llama").add_u32("general.file_type", 0);
  model.add_u32("general.quantization_version", 2).add_string("quantize.imatrix.file", "x");
  model.add_entry("tokenizer.ggml.tokens", 9, Bytes().put<std::uint32_t>(8).put<std::uint64_t>(1).text("a"));
  model.add_tensor("token_embd.weight", 0, {32, 5}, bytes_of_floats(random_weights(160, 1)));
  model.add_tensor("blk.0.attn_norm.weight", 0, {32}, bytes_of_floats(random_weights(32, 2)));
  model.add_tensor("blk.0.attn_q.weight", 0, {32, 48}, bytes_of_floats(random_weights(32 * 48, 3)));
  model.add_tensor("blk.0.attn_q.bias", 0, {48}, bytes_of_floats(random_weights(48, 4)));
  model.add_tensor("blk.0.ffn_down.weight", 0, {24, 32}, bytes_of_floats(random_weights(24 * 32, 5)));
  model.add_tensor("output_norm.weight", 0, {32}, bytes_of_floats(random_weights(32, 6)));
  return model;
}

class QuantizeModel : public ::testing::Test {
 protected:
  Result<QuantizeSummary> quantize(const Bytes& source, QuantizeOptions options = {}, int n_threads = 2) {
    ThreadPool pool(n_threads);
    return quantize_model(dir_.write("source.gguf", source.span()), output(), options, pool);
  }
  std::string output() const { return dir_.file("output.gguf"); }
  void expect_refused(const Bytes& source, const std::string& words, QuantizeOptions options = {}) {
    const Result<QuantizeSummary> summary = quantize(source, options);
    ASSERT_FALSE(summary.ok()) << "should have failed with: " << words;
    EXPECT_THAT(summary.error().to_string(), HasSubstr(words));
    EXPECT_THAT(dir_.names(), ElementsAre("source.gguf"));  // nothing half-written, under any name
  }

  TempDir dir_;
};

TEST_F(QuantizeModel, WritesANativeContainer) {
  const Bytes source = small_model().build();
  const Result<QuantizeSummary> summary = quantize(source);
  ASSERT_TRUE(summary.ok()) << summary.error().to_string();
  const Result<Checkpoint> checkpoint = Checkpoint::open(output());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_string();
  const GgufFile& file = checkpoint->file();
  EXPECT_TRUE(verify_checkpoint(file).ok());
  EXPECT_EQ(checkpoint->contract(), Contract::kNc1);
  EXPECT_EQ(file.require_string(kWeightPrecisionKey).value(), "nvfp4");
  EXPECT_EQ(file.require_string(kSchemaKey).value(), kSchema);
  EXPECT_EQ(file.require_string(kArtifactSha256Key).value(), sha256_hex(source.span()));
  EXPECT_EQ(file.require_string(kSourceSha256Key).value(), sha256_hex(source.span()));
  EXPECT_EQ(file.require_string(kRecipeKey).value(), "mse");
  EXPECT_EQ(file.require_uint("general.file_type").value(), 1U);
  EXPECT_EQ(file.require_string("general.architecture").value(), "llama");
  EXPECT_THAT(*file.find_strings("tokenizer.ggml.tokens").value(), ElementsAre("a"));
  EXPECT_EQ(file.find_value("general.quantization_version"), nullptr);
  EXPECT_EQ(file.find_value("quantize.imatrix.file"), nullptr);

  ASSERT_EQ(checkpoint->nvfp4_weights().size(), 1U);
  const Nvfp4View& q = checkpoint->nvfp4_weights()[0];
  EXPECT_EQ(q.name, "blk.0.attn_q.weight");
  EXPECT_EQ(q.rows, 48U);
  EXPECT_EQ(q.cols, 32U);
  EXPECT_EQ(file.find_tensor("token_embd.weight")->dtype, DType::kF16);
  EXPECT_EQ(file.find_tensor("blk.0.attn_norm.weight")->dtype, DType::kF32);
  EXPECT_EQ(file.find_tensor("blk.0.attn_q.bias")->dtype, DType::kF32);
  EXPECT_EQ(file.find_tensor("blk.0.ffn_down.weight")->dtype, DType::kF16);  // 24 inputs
  EXPECT_EQ(file.find_tensor("output.weight"), nullptr);                     // still tied
}

TEST_F(QuantizeModel, SummaryTellsErrorsAndWhatWasKept) {
  const Result<QuantizeSummary> summary = quantize(small_model().build());
  ASSERT_TRUE(summary.ok()) << summary.error().to_string();
  const std::vector<KindSummary> kinds = summary->by_kind();
  ASSERT_GE(kinds.size(), 2U);
  EXPECT_EQ(kinds[0].kind, "attn_q");
  EXPECT_NEAR(kinds[0].error.relative_rms(), 0.095, 0.02);  // Gaussian weights: about 20.5 dB
  EXPECT_NEAR(kinds[0].error.snr_db(), 20.5, 2.0);
  ASSERT_EQ(summary->worst(3).size(), 1U);
  EXPECT_EQ(summary->worst(3)[0].name, "blk.0.attn_q.weight");
  std::string note;
  for (const TensorSummary& tensor : summary->tensors) {
    if (tensor.name == "blk.0.ffn_down.weight") note = tensor.note;
  }
  EXPECT_THAT(note, HasSubstr("not a multiple of 16"));
}

TEST_F(QuantizeModel, OutputDoesNotDependOnThreads) {
  GgufBuilder model;
  model.add_tensor("blk.0.ffn_up.weight", 0, {4096, 2100}, bytes_of_floats(random_weights(4096 * 2100, 9)));  // 3 slabs
  const Bytes source = model.build();
  ASSERT_TRUE(quantize(source, {}, 1).ok());
  const std::vector<char> first = testing::read_file(output());
  for (int n_threads : {2, 3}) {
    ASSERT_TRUE(quantize(source, {}, n_threads).ok());
    EXPECT_TRUE(first == testing::read_file(output())) << n_threads << " threads";
  }
}

TEST_F(QuantizeModel, ATiedHeadGetsATensorOfItsOwnWhenItsFormatIsChosen) {
  for (const auto& [head, dtype] : {std::pair{HeadFormat::kQ8_0, DType::kQ8_0},
                                    {HeadFormat::kFp8, DType::kF8_E4M3FN},
                                    {HeadFormat::kNvfp4, DType::kNVFP4_E2M1}}) {
    const Result<QuantizeSummary> summary = quantize(small_model().build(), {.head = head});
    ASSERT_TRUE(summary.ok()) << summary.error().to_string();
    const Result<Checkpoint> checkpoint = Checkpoint::open(output());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_string();
    ASSERT_TRUE(checkpoint->has("output.weight"));
    EXPECT_EQ(checkpoint->file().find_tensor("output.weight")->dtype, dtype);
    EXPECT_EQ(checkpoint->file().find_tensor("token_embd.weight")->dtype, DType::kF16);
  }
}

// amax / 448 a row, and the nearest code of each quotient: the values are written out here, not computed by the
// encoder.
TEST_F(QuantizeModel, Fp8RowsHaveTheirOwnScales) {
  GgufBuilder model = small_model();
  std::vector<float> w(3 * 32, 0.0F);
  const float first[] = {448, -224, 1, 17, 19, 0x1p-10F, 0x1.8p-10F, -0.0F};
  for (std::size_t i = 0; i < std::size(first); ++i) w[i] = first[i], w[64 + i] = first[i] * 0x1p-20F;
  model.add_tensor("output.weight", 0, {32, 3}, bytes_of_floats(w));
  model.add_tensor("blk.0.ffn_up.weight", 0, {32, 2}, bytes_of_floats(random_weights(64, 8)));
  const Result<QuantizeSummary> summary =
      quantize(model.build(), {.head = HeadFormat::kFp8, .attention = AttentionFormat::kFp8});
  ASSERT_TRUE(summary.ok()) << summary.error().to_string();
  const Result<Checkpoint> checkpoint = Checkpoint::open(output());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_string();
  EXPECT_EQ(checkpoint->file().find_tensor("blk.0.attn_q.weight")->dtype, DType::kF8_E4M3FN);
  EXPECT_EQ(checkpoint->file().find_tensor("blk.0.ffn_down.weight")->dtype, DType::kF16);  // 24 inputs
  const Fp8View view = std::get<Fp8View>(checkpoint->weight("output.weight").value());
  EXPECT_THAT(view.scales, ElementsAre(1.0F, 1.0F, 0x1p-20F));
  for (const std::uint64_t row : {0, 2}) {
    const auto codes = view.row_codes(row).first(8);
    EXPECT_THAT(std::vector<int>(codes.begin(), codes.end()),
                ElementsAre(0x7E, 0xF6, 0x38, 0x58, 0x5A, 0x00, 0x01, 0x80));
  }
  EXPECT_THAT(view.row_codes(1), ::testing::Each(0));
}

TEST_F(QuantizeModel, AQ8HeadIsCopiedVerbatimAndABF16OneStays) {
  GgufBuilder model = small_model();
  Bytes q8;
  for (int i = 0; i < 5; ++i) {
    q8.put<std::uint16_t>(0x2C00);
    for (int j = 0; j < 32; ++j) q8.put<std::int8_t>(static_cast<std::int8_t>(i * 7 - j * 3));
  }
  model.add_tensor("output.weight", 8, {32, 5}, q8);
  ASSERT_TRUE(quantize(model.build(), {.head = HeadFormat::kQ8_0}).ok());
  Result<GgufFile> file = GgufFile::open(output());
  const std::span<const std::byte> copied = file->find_tensor("output.weight")->bytes;
  EXPECT_TRUE(std::equal(copied.begin(), copied.end(), q8.span().begin(), q8.span().end()));

  model = small_model();
  Bytes bf16;
  for (int i = 0; i < 160; ++i) bf16.put<std::uint16_t>(static_cast<std::uint16_t>(0x3C00 + i));
  model.add_tensor("output.weight", 30, {32, 5}, bf16);
  ASSERT_TRUE(quantize(model.build()).ok());
  file = GgufFile::open(output());
  EXPECT_EQ(file->find_tensor("output.weight")->dtype, DType::kBF16);
}

TEST_F(QuantizeModel, KeepCopiesHeadAndEmbeddingAndLeavesATiedHeadTied) {
  Bytes q8;
  for (int i = 0; i < 5; ++i) {
    q8.put<std::uint16_t>(0x2C00);
    for (int j = 0; j < 32; ++j) q8.put<std::int8_t>(static_cast<std::int8_t>(i * 7 - j * 3));
  }
  for (const bool has_head : {false, true}) {
    GgufBuilder model;
    model.add_tensor("blk.0.ffn_up.weight", 0, {64, 2}, bytes_of_floats(random_weights(128, 9)));
    model.add_tensor("token_embd.weight", 8, {32, 5}, q8);
    if (has_head) model.add_tensor("output.weight", 0, {32, 5}, bytes_of_floats(random_weights(160, 10)));
    const Result<QuantizeSummary> summary = quantize(model.build(), {.head = HeadFormat::kKeep});
    ASSERT_TRUE(summary.ok()) << summary.error().to_string();
    const Result<GgufFile> file = GgufFile::open(output());
    const TensorView* embedding = file->find_tensor("token_embd.weight");
    EXPECT_EQ(embedding->dtype, DType::kQ8_0);
    EXPECT_TRUE(std::equal(embedding->bytes.begin(), embedding->bytes.end(), q8.span().begin(), q8.span().end()));
    ASSERT_EQ(file->find_tensor("output.weight") != nullptr, has_head);
    if (has_head) {
      EXPECT_EQ(file->find_tensor("output.weight")->dtype, DType::kF32);
    }
    EXPECT_EQ(file->find_tensor("blk.0.ffn_up.weight")->dtype, DType::kNVFP4_E2M1);
  }
}

TEST_F(QuantizeModel, ATableThatNc1LacksMakesTheFileOneOfNk1) {
  for (const auto& [type, block_bytes, contract] : {std::tuple{8U, 34U, Contract::kNc1}, {2U, 18U, Contract::kNk1}}) {
    GgufBuilder model;
    model.add_tensor("blk.0.ffn_up.weight", 0, {64, 2}, bytes_of_floats(random_weights(128, 9)));
    model.add_tensor("token_embd.weight", type, {32, 5}, Bytes().resize(5 * block_bytes));
    ASSERT_TRUE(quantize(model.build(), {.head = HeadFormat::kKeep}).ok());
    const Result<Checkpoint> checkpoint = Checkpoint::open(output());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_string();
    EXPECT_EQ(checkpoint->contract(), contract);
  }
}

TEST_F(QuantizeModel, RefusesWhatCannotBeQuantized) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto with = [](const std::string& name, std::uint32_t type, const std::vector<std::uint64_t>& dims,
                       const Bytes& data) { return small_model().add_tensor(name, type, dims, data).build(); };
  std::vector<float> weights = random_weights(64, 7);
  weights[37] = nan;
  expect_refused(with("blk.1.attn_q.weight", 0, {32, 2}, bytes_of_floats(weights)), "row 1, column 5");
  expect_refused(with("blk.1.attn_norm.weight", 0, {64}, bytes_of_floats(weights)), "row 0, column 37");
  weights[37] = 70000;
  expect_refused(with("output.weight", 0, {32, 2}, bytes_of_floats(weights)), "that F16 cannot hold");
  weights.assign(64, 1e-20F);
  expect_refused(with("blk.1.attn_q.weight", 0, {32, 2}, bytes_of_floats(weights)), "a magnitude that nc1 cannot hold");
  expect_refused(with("blk.1.attn_q.weight", 1000, {32, 2}, Bytes().resize(32)), "NVFP4 already");
  expect_refused(with("blk.1.attn_q.weight", 40, {64, 1}, Bytes().resize(36)), "NVFP4 already");
  expect_refused(with("blk.1.attn_q.weight", 39, {32, 1}, Bytes().resize(17)), "cannot decode");
  expect_refused(with("output.weight", 0, {24, 2}, bytes_of_floats(random_weights(48, 8))), "cannot be Q8_0",
                 {.head = HeadFormat::kQ8_0});
  expect_refused(with("output.weight", 0, {24, 2}, bytes_of_floats(random_weights(48, 8))), "cannot be NVFP4",
                 {.head = HeadFormat::kNvfp4});
  weights.assign(64, 1.0F);
  weights[40] = 0x1p+60F;
  expect_refused(with("output.weight", 0, {32, 2}, bytes_of_floats(weights)), "row 1, column 8",
                 {.head = HeadFormat::kFp8});
  expect_refused(with("output.weight", 1001, {32, 2}, Bytes().resize(64)), "FP8 already");
  expect_refused(GgufBuilder().add_string("general.architecture", "llama").build(), "no linear layer");
}

TEST_F(QuantizeModel, StopsOnRequestAndLeavesNothing) {
  int calls = 0;
  expect_refused(small_model().build(), "stopped on request",
                 {.progress = [&](const QuantizeProgress&) { return ++calls < 3; }});
  EXPECT_EQ(calls, 3);
}

TEST_F(QuantizeModel, AFullDiskLeavesNothing) {
  ThreadPool pool(2);
  const std::string path = dir_.write("source.gguf", small_model().build().span());
  for (const rlim_t limit : {100U, 1000U, 2000U, 3000U}) {  // in the header, and in one tensor or another
    const testing::FileSizeLimit full(limit);
    const Result<QuantizeSummary> summary = quantize_model(path, output(), {}, pool);
    ASSERT_FALSE(summary.ok()) << limit;
    EXPECT_THAT(summary.error().message, HasSubstr("the disk is full"));
    EXPECT_THAT(summary.error().found, HasSubstr(std::to_string(limit) + " bytes written"));
    EXPECT_THAT(dir_.names(), ElementsAre("source.gguf"));
  }
}

TEST_F(QuantizeModel, RefusesToOverwriteItsSource) {
  ThreadPool pool(1);
  const std::string path = dir_.write("source.gguf", small_model().build().span());
  const Result<QuantizeSummary> summary = quantize_model(path, dir_.path() + "/./source.gguf", {}, pool);
  ASSERT_FALSE(summary.ok());
  EXPECT_THAT(summary.error().to_string(), HasSubstr("it is an input itself"));
}

}  // namespace
}  // namespace nibble
