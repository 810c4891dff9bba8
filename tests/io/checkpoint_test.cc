#include "io/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "io/dequantize.h"
#include "io/scan.h"
#include "tests/io/gguf_builder.h"

namespace nibble {
namespace {

using testing::Bytes;
using testing::bytes_of_floats;
using ::testing::ElementsAre;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint32_t kCodes = 1000;
constexpr std::uint32_t kScales = 1001;
const std::string kWeight = "blk.0.attn_q.weight";

struct TensorSpec {
  std::uint32_t type;
  std::vector<std::uint64_t> dims;
  Bytes data;
};

// A container with one NVFP4 weight [n_in 16, n_out 2]: every code once in its first row. A test changes one thing.
struct Container {
  std::map<std::string, std::string> metadata = {{"muser.weight_precision", "nvfp4"}, {"nibble.contract", "nc1"}};
  std::map<std::string, TensorSpec> tensors;

  Container() {
    Bytes codes;
    for (int row = 0; row < 2; ++row) codes.put<std::uint64_t>(0xFEDCBA9876543210U);
    tensors[kWeight] = {kCodes, {16, 2}, codes};
    tensors[kWeight + ".nvfp4_scale"] = {kScales, {1, 2}, Bytes().put<std::uint8_t>(0x38).put<std::uint8_t>(0x40)};
    tensors[kWeight + ".nvfp4_scale2"] = {0, {1}, bytes_of_floats({0.25F})};
  }

  Bytes build() const {
    GgufBuilder builder;
    for (const auto& [key, value] : metadata) builder.add_string(key, value);
    for (const auto& [name, tensor] : tensors) builder.add_tensor(name, tensor.type, tensor.dims, tensor.data);
    return builder.build();
  }
};

// The container is refused at load, and verify finds exactly this one fault, in the tensor or key `subject`.
void expect_fault(const Container& container, const std::string& words, const std::string& subject) {
  const Bytes bytes = container.build();
  Result<GgufFile> file = GgufFile::from_memory(bytes.span(), "test.gguf");
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  const CheckReport report = verify_checkpoint(*file);
  ASSERT_THAT(report.faults, SizeIs(1)) << "looking for: " << words;
  EXPECT_THAT(report.faults[0].to_string(), HasSubstr(words));
  EXPECT_EQ(report.faults[0].subject(), subject);
  const bool is_key = subject.starts_with("muser.") || subject.starts_with("nibble.");
  EXPECT_EQ(report.faults[0].key.empty(), !is_key);  // a key is not called a tensor
  EXPECT_EQ(report.faults[0].file, "test.gguf");
  const Result<Checkpoint> checkpoint = Checkpoint::from_gguf(std::move(*file));
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_EQ(checkpoint.error().message, report.faults[0].message);
}

void expect_accepted(const Container& container) {
  const Bytes bytes = container.build();
  Result<GgufFile> file = GgufFile::from_memory(bytes.span(), "test.gguf");
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  const CheckReport report = verify_checkpoint(*file);
  EXPECT_TRUE(report.ok()) << report.faults[0].to_string();
  EXPECT_EQ(report.n_tensors, container.tensors.size());
  EXPECT_TRUE(Checkpoint::from_gguf(std::move(*file)).ok());
}

TEST(Checkpoint, DecodesTheGoldenGroup) {
  const Bytes bytes = Container().build();
  const Result<Checkpoint> checkpoint =
      Checkpoint::from_gguf(std::move(GgufFile::from_memory(bytes.span(), "test.gguf")).value());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_string();
  const WeightView weight = checkpoint->weight(kWeight).value();
  const Nvfp4View& view = std::get<Nvfp4View>(weight);
  std::vector<float> row(16);
  dequantize_row(view, 0, row);
  EXPECT_THAT(row, ElementsAre(0, .125F, .25F, .375F, .5F, .75F, 1, 1.5F, -0.0F, -.125F, -.25F, -.375F, -.5F, -.75F, -1,
                               -1.5F));
  EXPECT_TRUE(std::signbit(row[8]));
  dequantize_row(view, 1, row);
  EXPECT_EQ(row[15], -3.0F);
  EXPECT_TRUE(std::holds_alternative<TensorView>(checkpoint->weight(kWeight + ".nvfp4_scale2").value()));
  EXPECT_FALSE(checkpoint->weight("absent").ok());
}

TEST(Checkpoint, MissingCompanions) {
  for (const std::string suffix : {".nvfp4_scale", ".nvfp4_scale2"}) {
    Container container;
    container.tensors.erase(kWeight + suffix);
    expect_fault(container, "missing", kWeight + suffix);
  }
}

TEST(Checkpoint, CompanionsOfWrongTypeOrShape) {
  const std::string scale = kWeight + ".nvfp4_scale";
  const std::string scale2 = kWeight + ".nvfp4_scale2";
  for (const std::uint32_t type : {24U, 0U, 30U}) {
    Container container;
    container.tensors[scale] = {type, {1, 2}, Bytes().resize(8)};
    expect_fault(container, "do not fit", scale);
  }
  for (const std::vector<std::uint64_t>& dims : {std::vector<std::uint64_t>{2}, {2, 1}, {1, 2, 1}, {1, 3}, {2, 2}}) {
    Container container;
    container.tensors[scale] = {kScales, dims, Bytes().resize(4)};
    expect_fault(container, "expected: F8_E4M3FN [1, 2]", scale);
  }
  for (const std::uint32_t type : {1U, 28U}) {
    Container container;
    container.tensors[scale2] = {type, {1}, Bytes().put(1.0)};
    expect_fault(container, "must be scalar F32", scale2);
  }
  for (const std::vector<std::uint64_t>& dims : {std::vector<std::uint64_t>{}, {2}, {1, 1}}) {
    Container container;
    container.tensors[scale2] = {0, dims, bytes_of_floats({1, 1})};
    expect_fault(container, "must be scalar F32", scale2);
  }
}

TEST(Checkpoint, WeightsThatCannotBeNvfp4) {
  for (const std::vector<std::uint64_t>& dims : {std::vector<std::uint64_t>{8, 4}, {32}, {16, 1, 2}}) {
    Container container;
    container.tensors[kWeight].dims = dims;
    expect_fault(container, "cannot be NVFP4", kWeight);
  }
}

TEST(Checkpoint, NanScalesAreCountedAndLocated) {
  const std::string scale = kWeight + ".nvfp4_scale";
  for (const std::uint8_t nan : {std::uint8_t{0x7F}, std::uint8_t{0xFF}}) {
    Container container;
    container.tensors[scale].data = Bytes().put<std::uint8_t>(0x38).put(nan);
    expect_fault(container, nan == 0x7F ? "1 NaN bytes, the first 0x7F" : "1 NaN bytes, the first 0xFF", scale);
    expect_fault(container, "at row 1, group 0", scale);
    container.tensors[scale].data = Bytes().put(nan).put(nan);
    expect_fault(container, "2 NaN bytes", scale);
  }
  for (const std::uint8_t legal : {0x00, 0x80, 0x01, 0x7E, 0xFE, 0xB8}) {  // zero, subnormal, negative
    Container container;
    container.tensors[scale].data = Bytes().put<std::uint8_t>(legal).put<std::uint8_t>(legal);
    expect_accepted(container);
  }
}

TEST(Checkpoint, TensorScalesMustBeFinitePositiveAndInRange) {
  const std::string scale2 = kWeight + ".nvfp4_scale2";
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {0.0F, -0.0F, -1.0F, inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
    Container container;
    container.tensors[scale2].data = bytes_of_floats({bad});
    expect_fault(container, "must be finite and positive", scale2);
  }
  for (const float outside : {0x1.fffffep-43F, 0x1.000002p+42F, 1e-40F}) {
    Container container;
    container.tensors[scale2].data = bytes_of_floats({outside});
    expect_fault(container, "out of the range of nc1", scale2);
    container.metadata["nibble.contract"] = "nc1-f16";
    expect_accepted(container);
  }
  for (const float inside : {0x1p-42F, 0x1p+42F}) {
    Container container;
    container.tensors[scale2].data = bytes_of_floats({inside});
    expect_accepted(container);
  }
}

TEST(Checkpoint, InputScalesAgreeWithTheMetadata) {
  const std::string name = kWeight + ".nvfp4_input_scale_inv";
  Container container;
  container.tensors[name] = {0, {1}, bytes_of_floats({43.75F})};
  expect_fault(container, "does not match muser.activation_precision", name);
  container.metadata["muser.activation_precision"] = "f16";
  expect_fault(container, "does not match muser.activation_precision", name);
  container.metadata["muser.activation_precision"] = "nvfp4";
  expect_accepted(container);
  container.tensors[name].data = bytes_of_floats({-1.0F});
  expect_fault(container, "must be finite and positive", name);
  container.tensors[name] = {1, {1}, Bytes().resize(2)};
  expect_fault(container, "must be scalar F32", name);
  container.tensors.erase(name);
  expect_fault(container, "does not match muser.activation_precision", name);
  container.metadata["muser.activation_precision"] = "fp8";
  expect_fault(container, "activation precision is not supported", "muser.activation_precision");
}

TEST(Checkpoint, LaneTable) {
  Container nvfp4;
  nvfp4.metadata.erase("muser.weight_precision");
  expect_fault(nvfp4, "does not announce", "muser.weight_precision");
  nvfp4.metadata["muser.weight_precision"] = "q4_k_xl";
  expect_fault(nvfp4, "does not announce", "muser.weight_precision");
  nvfp4.metadata["muser.weight_precision"] = "int3";
  expect_fault(nvfp4, "not supported", "muser.weight_precision");

  Container plain;
  plain.tensors = {{"w", {0, {4}, bytes_of_floats({1, 2, 3, 4})}}};
  expect_fault(plain, "no tensor has them", "muser.weight_precision");
  plain.metadata["muser.weight_precision"] = "q4_k_xl";
  expect_accepted(plain);
  plain.metadata["muser.activation_precision"] = "nvfp4";
  expect_fault(plain, "without NVFP4 weights", "muser.activation_precision");
  plain.metadata.clear();
  expect_accepted(plain);
}

TEST(Checkpoint, CompanionsWithoutAWeight) {
  for (const std::string suffix : {".nvfp4_scale", ".nvfp4_scale2", ".nvfp4_input_scale_inv"}) {
    Container container;
    container.tensors["blk.1.attn_q.weight" + suffix] = {0, {1}, bytes_of_floats({1})};
    expect_fault(container, "without an NVFP4 weight", "blk.1.attn_q.weight" + suffix);
    container.tensors["blk.1.attn_q.weight"] = {0, {1}, bytes_of_floats({1})};
    expect_fault(container, "without an NVFP4 weight", "blk.1.attn_q.weight" + suffix);
  }
}

// The container with an FP8 weight [n_in 130, n_out 3] beside its NVFP4 one.
const std::string kEight = "output.weight";
const std::string kEightScale = kEight + ".fp8_scale";
Container with_fp8(const std::vector<std::uint64_t>& dims, const std::vector<float>& scales) {
  Container container;
  container.tensors[kEight] = {kScales, {130, 3}, Bytes().resize(390)};
  container.tensors[kEightScale] = {0, dims, bytes_of_floats(scales)};
  return container;
}

TEST(CheckpointFp8, ScalesOfATensorOfRowsAndOfTiles) {
  const std::pair<std::vector<std::uint64_t>, std::vector<float>> all[] = {
      {{1}, {0.5F}}, {{3}, {0.5F, 2, 4}}, {{2, 1}, {0.5F, 8}}};
  for (const auto& [dims, scales] : all) {
    Container container = with_fp8(dims, scales);
    std::vector<std::byte>& codes = container.tensors[kEight].data.data();
    codes[0] = std::byte{0x38};    // 1
    codes[260] = std::byte{0xC0};  // -2, the first of row 2
    codes[389] = std::byte{0x01};  // 2^-9, the last
    expect_accepted(container);
    const Bytes bytes = container.build();
    const Result<Checkpoint> checkpoint =
        Checkpoint::from_gguf(std::move(GgufFile::from_memory(bytes.span(), "test.gguf")).value());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_string();
    const WeightView weight = checkpoint->weight(kEight).value();
    std::vector<float> row(130);
    dequantize_row(std::get<Fp8View>(weight), 0, row);
    EXPECT_EQ(row[0], 0.5F);
    dequantize_row(std::get<Fp8View>(weight), 2, row);
    EXPECT_EQ(row[0], -2 * (dims[0] == 3 ? scales[2] : scales[0]));
    EXPECT_EQ(row[129], 0x1p-9F * scales.back());
    EXPECT_EQ(row[1], 0.0F);
  }
}

TEST(CheckpointFp8, MissingMisshapenAndStrayScales) {
  Container container = with_fp8({1}, {1});
  container.tensors.erase(kEightScale);
  expect_fault(container, "the scales of output.weight are missing", kEightScale);
  for (const std::vector<std::uint64_t>& dims :
       {std::vector<std::uint64_t>{}, {2}, {130}, {1, 3}, {1, 2}, {2, 2}, {3, 1}}) {
    expect_fault(with_fp8(dims, std::vector<float>(130, 1.0F)), "F32 [1], [3] or [2, 1]", kEightScale);
  }
  container = with_fp8({1}, {1});
  container.tensors[kEightScale] = {1, {3}, Bytes().resize(6)};
  expect_fault(container, "F16 [3]", kEightScale);
  container = with_fp8({1}, {1});
  container.tensors.erase(kEight);
  expect_fault(container, "a companion without an FP8 weight", kEightScale);
  container.tensors[kEight] = {0, {1}, bytes_of_floats({1})};
  expect_fault(container, "F32 [1]", kEightScale);
  container = Container();
  container.tensors[kEight] = {kScales, {4}, Bytes().resize(4)};
  expect_fault(container, "cannot be FP8", kEight);
}

TEST(CheckpointFp8, NaNCodesAndScalesOutOfRange) {
  for (const std::uint8_t nan : {0x7F, 0xFF}) {
    Container container = with_fp8({1}, {1});
    container.tensors[kEight].data.data()[131] = std::byte{nan};
    expect_fault(container, "row 1, column 1", kEight);
  }
  for (const float bad : {0.0F, -1.0F, 0x1p-43F, 0x1.8p+42F, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    expect_fault(with_fp8({3}, {1, bad, 1}), "element 1", kEightScale);
  }
  expect_accepted(with_fp8({3}, {0x1p-42F, 1, 0x1p+42F}));
}

TEST(Checkpoint, SchemaDigestsAndContractAreRead) {
  Container container;
  container.metadata["muser.nvfp4.schema"] = "muser.nvfp4-native-gguf.v2";
  container.metadata["muser.nvfp4.source_artifact_sha256"] = std::string(64, 'a');
  container.metadata["nibble.source_sha256"] = std::string(64, '0');
  container.metadata["nibble.recipe"] = "max";
  expect_accepted(container);
  const std::pair<std::string, std::string> bad[] = {{"muser.nvfp4.schema", "muser.nvfp4-native-gguf.v3"},
                                                     {"muser.nvfp4.source_artifact_sha256", std::string(63, 'a')},
                                                     {"nibble.source_sha256", std::string(64, 'g')},
                                                     {"nibble.recipe", ""},
                                                     {"nibble.contract", "nc2"}};
  for (const auto& [key, value] : bad) {
    Container changed = container;
    changed.metadata[key] = value;
    expect_fault(changed, "", key);
  }
}

TEST(Checkpoint, ContractRule) {
  const auto contract = [](const std::map<std::string, std::string>& metadata) {
    Container container;
    container.metadata = metadata;
    const Bytes bytes = container.build();
    return contract_of(*GgufFile::from_memory(bytes.span(), "test.gguf")).value();
  };
  EXPECT_EQ(contract({}), Contract::kNc1);
  EXPECT_EQ(contract({{"muser.anything", "x"}}), Contract::kNc1F16);
  EXPECT_EQ(contract({{"muser.anything", "x"}, {"nibble.contract", "nc1"}}), Contract::kNc1);
  EXPECT_EQ(contract({{"nibble.contract", "nc1-f16"}}), Contract::kNc1F16);
  EXPECT_EQ(contract({{"nibble.contract", "nk1"}}), Contract::kNk1);
}

TEST(Checkpoint, VerifyListsEveryFault) {
  Container container;
  container.metadata["muser.activation_precision"] = "fp8";
  container.tensors.erase(kWeight + ".nvfp4_scale");
  container.tensors[kWeight + ".nvfp4_scale2"].data = bytes_of_floats({0});
  container.tensors["norm"] = {0, {2}, bytes_of_floats({1, std::numeric_limits<float>::infinity()})};
  const Bytes bytes = container.build();
  const Result<GgufFile> file = GgufFile::from_memory(bytes.span(), "test.gguf");
  EXPECT_THAT(verify_checkpoint(*file).faults, SizeIs(4));
}

TEST(Checkpoint, VerifyStopsListingAtSomePoint) {
  GgufBuilder builder;
  for (int i = 0; i < 3000; ++i) {
    builder.add_tensor("t" + std::to_string(i), 0, {1}, bytes_of_floats({std::numeric_limits<float>::infinity()}));
  }
  const Bytes bytes = builder.build();
  const Result<GgufFile> file = GgufFile::from_memory(bytes.span(), "test.gguf");
  const std::vector<Error> faults = verify_checkpoint(*file).faults;
  ASSERT_THAT(faults, SizeIs(kMaxFaults + 1));
  EXPECT_EQ(faults.back().message, "there are more faults than these");
}

TEST(Checkpoint, VerifyFindsNonFiniteFloats) {
  const auto verify = [](std::uint32_t type, const std::vector<std::uint64_t>& dims, const Bytes& data) {
    const Bytes bytes = GgufBuilder().add_tensor("w", type, dims, data).build();
    return verify_checkpoint(*GgufFile::from_memory(bytes.span(), "test.gguf")).faults;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> values(3000, 1.0F);
  EXPECT_THAT(verify(0, {1000, 3}, bytes_of_floats(values)), IsEmpty());
  values[2017] = nan;
  values[2500] = -std::numeric_limits<float>::infinity();
  const std::vector<Error> faults = verify(0, {1000, 3}, bytes_of_floats(values));
  ASSERT_THAT(faults, SizeIs(1));
  EXPECT_EQ(faults[0].found, "2 non-finite values, the first at row 2, column 17");
  EXPECT_THAT(verify(1, {2}, Bytes().put<std::uint16_t>(0x7BFF).put<std::uint16_t>(0xFC00)), SizeIs(1));
  EXPECT_THAT(verify(1, {2}, Bytes().put<std::uint16_t>(0x7BFF).put<std::uint16_t>(0x03FF)), IsEmpty());
  EXPECT_THAT(verify(30, {1}, Bytes().put<std::uint16_t>(0x7F81)), SizeIs(1));
  EXPECT_THAT(verify(30, {1}, Bytes().put<std::uint16_t>(0x7F7F)), IsEmpty());
  const Bytes block = Bytes().put<std::uint16_t>(0x3C00).resize(34).put<std::uint16_t>(0x7E00).resize(68);
  EXPECT_THAT(verify(8, {64}, block)[0].found,
              HasSubstr("1 blocks with a non-finite scale, the first at row 0, column 32"));
  EXPECT_THAT(verify(24, {2}, Bytes().put<std::uint16_t>(0xFFFF)), IsEmpty());
}

TEST(Scan, DoesNotDependOnThreads) {
  std::vector<float> values(100'000, 0.5F);
  for (const std::size_t at : {77'777U, 4'096U, 99'999U}) values[at] = std::numeric_limits<float>::infinity();
  const Bytes bytes = bytes_of_floats(values);
  const TensorView tensor{.name = "t", .dtype = DType::kF32, .shape = {values.size()}, .bytes = bytes.span()};
  for (int n_threads : {1, 2, 3, 7}) {
    ThreadPool pool(n_threads);
    const NonFinite found = find_non_finite(tensor, &pool);
    EXPECT_EQ(found.count, 3U);
    EXPECT_EQ(found.first, 4'096U);
  }
  EXPECT_EQ(find_non_finite(tensor, nullptr).first, 4'096U);
}

}  // namespace
}  // namespace nibble
