#include "io/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/gguf.h"
#include "tests/base/temp_dir.h"
#include "tests/io/gguf_builder.h"

namespace nibble {
namespace {

using testing::Bytes;
using testing::bytes_of_floats;
using ::testing::ElementsAre;
using testing::GgufBuilder;
using ::testing::IsEmpty;
using testing::TempDir;

TEST(GgufWriter, WhatItWritesIsRead) {
  const TempDir dir;
  const Bytes other_bytes =
      GgufBuilder().add_entry("nested", 9, Bytes().put<std::uint32_t>(9).put<std::uint64_t>(0)).build();
  const Result<GgufFile> other = GgufFile::from_memory(other_bytes.span(), "other");
  GgufWriter writer;
  writer.add_string("general.architecture", "llama");
  writer.add_u32("u", 7);
  writer.add_f32("f", 0.5F);
  writer.add_bool("b", true);
  const std::string_view words[] = {"x", "", "yz"};
  writer.add_strings("s", words);
  writer.add_value("nested", *other->find_value("nested"));
  writer.declare_tensor("a", DType::kF32, {3});
  writer.declare_tensor("b", DType::kNVFP4_E2M1, {16, 2});
  writer.declare_tensor("c", DType::kF32, {});
  const std::uint64_t total = writer.total_bytes();
  ASSERT_TRUE(writer.begin(dir.file("f")).ok());
  const std::vector<float> a = {1, 2, 3};
  ASSERT_TRUE(writer.append("a", std::as_bytes(std::span(a).first(1))).ok());
  ASSERT_TRUE(writer.append("a", std::as_bytes(std::span(a).subspan(1))).ok());
  ASSERT_TRUE(writer.append("b", std::vector<std::byte>(16, std::byte{0x21})).ok());
  const float c = 9;
  ASSERT_TRUE(writer.append("c", std::as_bytes(std::span(&c, 1))).ok());
  EXPECT_FALSE(std::filesystem::exists(dir.file("f")));
  ASSERT_TRUE(writer.finish().ok());

  const Result<GgufFile> file = GgufFile::open(dir.file("f"));
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  EXPECT_EQ(file->file_bytes(), total);
  EXPECT_EQ(file->parts()[0].version, 3U);
  EXPECT_EQ(file->require_uint("u").value(), 7U);
  EXPECT_EQ(file->require_float("f").value(), 0.5);
  EXPECT_EQ(file->find_bool("b").value(), true);
  EXPECT_THAT(*file->find_strings("s").value(), ElementsAre("x", "", "yz"));
  EXPECT_THAT(file->find_value("nested")->elements(), IsEmpty());
  ASSERT_EQ(file->tensors().size(), 3U);
  float last = 0;
  std::memcpy(&last, file->find_tensor("a")->bytes.data() + 8, 4);
  EXPECT_EQ(last, 3.0F);
  EXPECT_EQ(file->find_tensor("b")->bytes[15], std::byte{0x21});
  EXPECT_EQ(file->find_tensor("c")->shape.rank(), 0U);
}

TEST(GgufWriter, UnfinishedLeavesNothing) {
  const TempDir dir;
  {
    GgufWriter writer;
    writer.declare_tensor("a", DType::kF32, {3});
    ASSERT_TRUE(writer.begin(dir.file("f")).ok());
  }
  EXPECT_THAT(dir.names(), IsEmpty());
}

TEST(GgufWriterDeathTest, MisuseIsAnAssertion) {
  const TempDir dir;
  GgufWriter twice;
  twice.add_u32("k", 1);
  twice.add_u32("k", 2);
  EXPECT_DEATH((void)twice.begin(dir.file("f")), "a key or a tensor name twice");
  GgufWriter writer;
  writer.declare_tensor("a", DType::kF32, {1});
  ASSERT_TRUE(writer.begin(dir.file("g")).ok());
  EXPECT_DEATH((void)writer.append("b", {}), "out of the declared order");
  EXPECT_DEATH((void)writer.append("a", std::vector<std::byte>(5)), "more data");
  EXPECT_DEATH((void)writer.finish(), "before all tensors");
}

}  // namespace
}  // namespace nibble
