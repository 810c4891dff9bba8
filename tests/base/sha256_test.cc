#include "base/sha256.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(Sha256, MatchesTheStandardsVectors) {  // FIPS 180-2, appendix B
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const std::string abc = "abc";
  EXPECT_EQ(sha256_hex(std::as_bytes(std::span(abc))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, MissingFileIsAnErrorThatNamesIt) {
  const auto result = sha256_file("/nonexistent/file");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().file, "/nonexistent/file");
}

}  // namespace
}  // namespace nibble
