#include "kernels/memory_need.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nibble::kernels {
namespace {

using ::testing::HasSubstr;

TEST(MemoryNeed, ShowsTheArithmeticOfARefusal) {
  const MemoryNeed need{.weights = 5'000'000'000, .kv_cache = 1'000'000'000, .scratch = 250'000'000};
  EXPECT_TRUE(check_fits(need, 6'250'000'000, 8'000'000'000, "a GPU").ok());
  const Status refused = check_fits(need, 6'249'999'999, 8'000'000'000, "a GPU");
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("a GPU"));
  EXPECT_EQ(refused.error().found, "5.00 GB of weights + 1.00 GB of KV cache + 0.25 GB of scratch = 6.25 GB");
  EXPECT_EQ(refused.error().expected, "at most 6.25 GB, which are free of 8.00 GB");
}

TEST(MemoryNeed, LeavesOutWhatIsNotWanted) {
  const Status refused = check_fits({.kv_cache = 2'000'000'000}, 1, 2, "a GPU");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().found, "2.00 GB of KV cache = 2.00 GB");
  EXPECT_THAT(refused.error().hint, HasSubstr("{ctx}"));
}

}  // namespace
}  // namespace nibble::kernels
