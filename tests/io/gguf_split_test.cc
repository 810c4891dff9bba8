#include "io/gguf_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/temp_dir.h"
#include "tests/io/gguf_builder.h"

namespace nibble {
namespace {

using testing::Bytes;
using testing::bytes_of_floats;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::TempDir;

class GgufSplit : public ::testing::Test {
 protected:
  static GgufBuilder part(std::uint16_t number, std::uint16_t count, std::int32_t n_tensors) {
    GgufBuilder builder;
    builder.add_entry("split.no", 2, Bytes().put(number)).add_entry("split.count", 2, Bytes().put(count));
    builder.add_entry("split.tensors.count", 5, Bytes().put(n_tensors));
    builder.add_tensor("t" + std::to_string(number), 0, {1}, bytes_of_floats({static_cast<float>(number)}));
    return builder;
  }
  std::string write(int number, int count, const GgufBuilder& builder) const {
    char name[64];
    std::snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", number, count);
    return dir_.write(name, builder.build().span());
  }
  // Three good parts; a test then damages one.
  std::string write_all() const {
    for (int i = 1; i < 3; ++i) write(i + 1, 3, part(static_cast<std::uint16_t>(i), 3, 3));
    return write(1, 3, part(0, 3, 3));
  }
  void expect_refused(const std::string& path, const std::string& words) const {
    const Result<GgufFile> file = GgufFile::open(path);
    ASSERT_FALSE(file.ok()) << "should have failed with: " << words;
    EXPECT_THAT(file.error().to_string(), HasSubstr(words));
  }

  TempDir dir_;
};

TEST_F(GgufSplit, JoinsTheParts) {
  const Result<GgufFile> file = GgufFile::open(write_all());
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  ASSERT_EQ(file->tensors().size(), 3U);
  for (int i = 0; i < 3; ++i) {
    const TensorView* tensor = file->find_tensor("t" + std::to_string(i));
    ASSERT_NE(tensor, nullptr);
    float value = -1;
    std::memcpy(&value, tensor->bytes.data(), 4);
    EXPECT_EQ(value, static_cast<float>(i));
    EXPECT_THAT(file->path_of(*tensor), HasSubstr("m-0000" + std::to_string(i + 1)));
  }
}

TEST_F(GgufSplit, RefusesAMissingPart) {
  const std::string first = write_all();
  std::filesystem::remove(dir_.file("m-00002-of-00003.gguf"));
  expect_refused(first, "m-00002-of-00003.gguf: No such file");
  expect_refused(first, "the model has 3 parts");
}

TEST_F(GgufSplit, RefusesPartsInTheWrongOrder) {
  const std::string first = write_all();
  write(2, 3, part(2, 3, 3));
  expect_refused(first, "not the one its name says");
  write_all();
  expect_refused(dir_.file("m-00002-of-00003.gguf"), "pass the first");
}

TEST_F(GgufSplit, RefusesDisagreement) {
  const std::string first = write_all();
  write(3, 3, part(2, 4, 3));
  expect_refused(first, "do not agree on their number");
  write(3, 3, part(2, 3, 3));
  write(1, 3, part(0, 3, 4));
  expect_refused(first, "do not hold as many tensors");
  write(1, 3, part(0, 0, 3));
  expect_refused(first, "number of parts is impossible");
}

TEST_F(GgufSplit, RefusesADuplicateAcrossParts) {
  const std::string first = write_all();
  GgufBuilder last = part(2, 3, 4);
  last.add_tensor("t0", 0, {1}, bytes_of_floats({5}));
  write(3, 3, last);
  write(1, 3, part(0, 3, 4));
  expect_refused(first, "two parts of the model have a tensor called t0");
}

TEST_F(GgufSplit, RefusesADamagedPartAndAnOddName) {
  const std::string first = write_all();
  dir_.write("m-00003-of-00003.gguf", Bytes().raw("GGUF").span());
  expect_refused(first, "ends inside the version");
  const std::string odd = dir_.write("model.gguf", part(0, 3, 3).build().span());
  expect_refused(odd, "does not tell how the others are called");
}

}  // namespace
}  // namespace nibble
