#include "io/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/io/gguf_builder.h"

namespace nibble {
namespace {

using testing::Bytes;
using testing::bytes_of_floats;
using ::testing::ElementsAre;
using testing::GgufBuilder;
using ::testing::HasSubstr;

constexpr std::uint64_t kHuge = std::uint64_t{1} << 63;

Result<GgufFile> parse(const Bytes& bytes) {
  return GgufFile::from_memory(bytes.span(), "test.gguf");
}

void expect_refused(const Bytes& bytes, const std::string& words) {
  const Result<GgufFile> file = parse(bytes);
  ASSERT_FALSE(file.ok()) << "accepted a file that should fail with: " << words;
  EXPECT_THAT(file.error().to_string(), HasSubstr(words));
  EXPECT_EQ(file.error().file, "test.gguf");
}

GgufBuilder small_file() {
  GgufBuilder builder;
  builder.add_string("general.architecture", "llama").add_u32("llama.block_count", 2);
  builder.add_tensor("a", 0, {2, 3}, bytes_of_floats({1, 2, 3, 4, 5, 6})).add_tensor("b", 0, {1}, bytes_of_floats({7}));
  return builder;
}

TEST(Gguf, ReadsTensorsAndMetadata) {
  const Bytes bytes = small_file().build();
  const Result<GgufFile> file = parse(bytes);
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  ASSERT_EQ(file->tensors().size(), 2U);
  const TensorView* a = file->find_tensor("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, DType::kF32);
  EXPECT_EQ(a->rows(), 3U);
  EXPECT_EQ(a->cols(), 2U);
  float last = 0;
  std::memcpy(&last, a->row_span(2).data() + 4, 4);
  EXPECT_EQ(last, 6.0F);
  EXPECT_EQ(file->find_tensor("c"), nullptr);
  EXPECT_EQ(file->require_string("general.architecture").value(), "llama");
  EXPECT_EQ(file->require_uint("llama.block_count").value(), 2U);
  EXPECT_FALSE(file->require_uint("llama.absent").ok());
  EXPECT_FALSE(file->find_uint("llama.absent").value().has_value());
  EXPECT_THAT(file->find_uint("general.architecture").error().to_string(), HasSubstr("STRING"));
}

TEST(Gguf, ReadsEveryValueType) {
  GgufBuilder builder;
  builder.add_entry("u8", 0, Bytes().put<std::uint8_t>(200)).add_entry("i8", 1, Bytes().put<std::int8_t>(-5));
  builder.add_entry("u16", 2, Bytes().put<std::uint16_t>(60000)).add_entry("i16", 3, Bytes().put<std::int16_t>(-7));
  builder.add_entry("u32", 4, Bytes().put<std::uint32_t>(4'000'000'000U));
  builder.add_entry("i32", 5, Bytes().put<std::int32_t>(-9)).add_entry("f32", 6, Bytes().put(0.5F));
  builder.add_entry("bool", 7, Bytes().put<std::uint8_t>(1)).add_entry("u64", 10, Bytes().put(kHuge));
  builder.add_entry("i64", 11, Bytes().put<std::int64_t>(-11)).add_entry("f64", 12, Bytes().put(0.25));
  builder.add_entry("ints", 9,
                    Bytes().put<std::uint32_t>(1).put<std::uint64_t>(2).put<std::int8_t>(3).put<std::int8_t>(-4));
  builder.add_entry("strings", 9, Bytes().put<std::uint32_t>(8).put<std::uint64_t>(2).text("ab").text(""));
  builder.add_entry("floats", 9, Bytes().put<std::uint32_t>(6).put<std::uint64_t>(1).put(1.5F));
  const Bytes inner = Bytes().put<std::uint32_t>(4).put<std::uint64_t>(2).put<std::uint32_t>(1).put<std::uint32_t>(2);
  const Bytes none = Bytes().put<std::uint32_t>(8).put<std::uint64_t>(0);
  builder.add_entry("nested", 9, Bytes().put<std::uint32_t>(9).put<std::uint64_t>(2).append(inner).append(none));
  const Bytes bytes = builder.build();
  const Result<GgufFile> file = parse(bytes);
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  EXPECT_EQ(file->find_value("u8")->as_uint(), 200U);
  EXPECT_EQ(file->find_value("i8")->as_int(), -5);
  EXPECT_EQ(file->find_value("i8")->as_uint(), std::nullopt);
  EXPECT_EQ(file->find_value("u16")->as_int(), 60000);
  EXPECT_EQ(file->find_value("i16")->as_int(), -7);
  EXPECT_EQ(file->find_value("u32")->as_uint(), 4'000'000'000U);
  EXPECT_EQ(file->find_value("i32")->as_int(), -9);
  EXPECT_EQ(file->find_value("f32")->as_float(), 0.5);
  EXPECT_EQ(file->find_value("f32")->as_uint(), std::nullopt);
  EXPECT_EQ(file->find_value("bool")->as_bool(), true);
  EXPECT_EQ(file->find_value("u64")->as_uint(), kHuge);
  EXPECT_EQ(file->find_value("u64")->as_int(), std::nullopt);
  EXPECT_EQ(file->find_value("i64")->as_int(), -11);
  EXPECT_EQ(file->find_value("f64")->as_float(), 0.25);
  EXPECT_THAT(*file->find_value("ints")->as_ints(), ElementsAre(3, -4));
  EXPECT_THAT(*file->find_value("strings")->as_strings(), ElementsAre("ab", ""));
  EXPECT_THAT(*file->find_value("floats")->as_floats(), ElementsAre(1.5));
  EXPECT_EQ(file->find_value("ints")->as_strings(), std::nullopt);
  const std::vector<GgufValue> nested = file->find_value("nested")->elements();
  ASSERT_EQ(nested.size(), 2U);
  EXPECT_THAT(*nested[0].as_ints(), ElementsAre(1, 2));
  EXPECT_EQ(nested[1].size(), 0U);
  EXPECT_EQ(file->find_value("nested")->type_text(), "array of ARRAY");
}

TEST(Gguf, RefusesEveryTruncation) {
  const Bytes whole = small_file().build();
  ASSERT_TRUE(parse(whole).ok());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    Bytes cut = whole;
    EXPECT_FALSE(parse(cut.resize(size)).ok()) << "accepted when cut to " << size << " bytes";
  }
}

TEST(Gguf, RefusesWrongMagicVersionAndEndianness) {
  GgufBuilder builder = small_file();
  builder.magic = 0x47475546;
  expect_refused(builder.build(), "big-endian");
  builder = small_file();
  builder.version = 0x03000000;
  expect_refused(builder.build(), "big-endian");
  for (std::uint32_t version : {0U, 1U, 4U}) {
    builder.version = version;
    expect_refused(builder.build(), "is not supported");
  }
  builder.version = 2;
  EXPECT_TRUE(parse(builder.build()).ok());
  expect_refused(Bytes().raw("<!DOCTYPE html><html>"), "web page");
  expect_refused(Bytes().raw("version https://git-lfs.github.com/spec/v1"), "git lfs pull");
  expect_refused(Bytes().raw("PK\x03\x04 and so on"), "zip");
  expect_refused(Bytes().raw("\x1b[31m evil"), "\\x1b[31m");
}

TEST(Gguf, RefusesImpossibleCounts) {
  for (std::uint64_t count : {kHuge, ~std::uint64_t{0} - 2, std::uint64_t{100'001}, std::uint64_t{50}}) {
    GgufBuilder builder = small_file();
    builder.extra_entries = count;
    expect_refused(builder.build(), "impossible number of metadata entries");
    builder = small_file();
    builder.extra_tensors = count + 2'000'000;
    expect_refused(builder.build(), "impossible number of tensors");
  }
  const auto array = [](std::uint32_t type, std::uint64_t count) {
    return GgufBuilder().add_entry("a", 9, Bytes().put(type).put(count).put<std::uint64_t>(0)).build();
  };
  for (std::uint32_t type : {0U, 4U, 8U, 9U, 12U}) expect_refused(array(type, kHuge), "longer than the file");
  expect_refused(GgufBuilder().add_entry("s", 8, Bytes().put(kHuge)).build(), "ends inside a metadata string");
  expect_refused(GgufBuilder().add_entry("s", 8, Bytes().put(~std::uint64_t{0})).build(),
                 "ends inside a metadata string");
  expect_refused(GgufBuilder().add_entry("", 4, Bytes().put(1U)).build(), "impossible length");
}

TEST(Gguf, RefusesBadMetadata) {
  expect_refused(GgufBuilder().add_u32("a", 1).add_u32("b", 1).add_u32("a", 2).build(), "stands twice");
  expect_refused(GgufBuilder().add_entry("a", 13, Bytes()).build(), "unknown type");
  expect_refused(GgufBuilder().add_entry("a", 7, Bytes().put<std::uint8_t>(2)).build(), "neither 0 nor 1");
  const Bytes bools = Bytes().put<std::uint32_t>(7).put<std::uint64_t>(2).put<std::uint8_t>(1).put<std::uint8_t>(9);
  expect_refused(GgufBuilder().add_entry("a", 9, bools).build(), "neither 0 nor 1");
  Bytes deep;
  for (int i = 0; i < 1000; ++i) deep.put<std::uint32_t>(9).put<std::uint64_t>(1);
  expect_refused(GgufBuilder().add_entry("a", 9, deep).build(), "nests arrays deeper");
  for (std::uint32_t alignment : {0U, 3U, 4U, 48U}) {
    expect_refused(GgufBuilder().add_u32("general.alignment", alignment).build(), "alignment");
  }
  expect_refused(GgufBuilder().add_string("general.alignment", "32").build(), "alignment");
}

TEST(Gguf, HonoursAlignment) {
  GgufBuilder builder;
  builder.alignment = 256;
  builder.add_u32("general.alignment", 256);
  builder.add_tensor("a", 0, {1}, bytes_of_floats({1})).add_tensor("b", 0, {1}, bytes_of_floats({2}));
  const Bytes bytes = builder.build();
  const Result<GgufFile> file = parse(bytes);
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  EXPECT_EQ(file->tensors()[1].bytes.data() - file->tensors()[0].bytes.data(), 256);
}

TEST(Gguf, RefusesBadTensors) {
  const auto one = [](std::uint32_t type, const std::vector<std::uint64_t>& dims, std::uint64_t offset = 0) {
    return GgufBuilder().add_tensor_at("t", type, dims, offset, bytes_of_floats(std::vector<float>(64))).build();
  };
  ASSERT_TRUE(parse(one(0, {4, 4})).ok());
  expect_refused(one(0, {65}), "past the end of the file");
  expect_refused(one(0, {4}, 256), "past the end of the file");
  expect_refused(one(0, {4}, kHuge), "past the end of the file");
  expect_refused(one(0, {4}, ~std::uint64_t{31}), "past the end of the file");
  expect_refused(one(0, {4}, 8), "not aligned");
  expect_refused(one(0, {kHuge}), "impossible shape");
  expect_refused(one(0, {std::uint64_t{1} << 32, std::uint64_t{1} << 32}), "impossible shape");
  expect_refused(one(0, {std::uint64_t{1} << 32, std::uint64_t{1} << 32, 0}), "dimension of 0");
  expect_refused(one(0, {0}), "dimension of 0");
  expect_refused(one(8, {33}), "impossible shape");
  expect_refused(one(1000, {3}), "impossible shape");
  expect_refused(one(0, {1, 1, 1, 1, 1}), "too many dimensions");
  expect_refused(one(4, {32}), "does not know");
  expect_refused(one(999, {32}), "does not know");
}

TEST(Gguf, RefusesDuplicateAndOverlappingTensors) {
  GgufBuilder builder = small_file();
  builder.add_tensor("a", 0, {1}, bytes_of_floats({1}));
  expect_refused(builder.build(), "two tensors are called a");
  const Bytes data = bytes_of_floats(std::vector<float>(32));
  const auto two = [&](std::uint64_t first, std::uint64_t second) {
    return GgufBuilder().add_tensor_at("p", 0, {16}, first, data).add_tensor_at("q", 0, {16}, second, data).build();
  };
  ASSERT_TRUE(parse(two(0, 64)).ok());
  ASSERT_TRUE(parse(two(64, 0)).ok());
  expect_refused(two(0, 32), "overlap");
  expect_refused(two(32, 0), "overlap");
  expect_refused(two(32, 32), "overlap");
}

TEST(Gguf, AScalarTensorHasOneElement) {
  const Bytes bytes = GgufBuilder().add_tensor("s", 0, {}, bytes_of_floats({3})).build();
  const Result<GgufFile> file = parse(bytes);
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  EXPECT_EQ(file->tensors()[0].bytes.size(), 4U);
}

TEST(Gguf, APartOfASplitModelIsRefusedInMemory) {
  GgufBuilder builder = small_file();
  builder.add_entry("split.count", 2, Bytes().put<std::uint16_t>(3));
  expect_refused(builder.build(), "split model");
}

}  // namespace
}  // namespace nibble
