#include "kernels/seam_canary.h"

#include "tests/kernels/backend_fixture.h"

namespace nibble::kernels::test {
namespace {

TEST(SeamCanary, EveryBackendSingsTheSame) {
  const auto expected = seam_canary_digest(reference());
  ASSERT_TRUE(expected.ok()) << expected.error().to_string();
  EXPECT_EQ(*expected, kSeamCanaryDigest) << std::hex << "0x" << *expected;
  for (const auto& backend : all_backends()) {
    const auto found = seam_canary_digest(*backend);
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    EXPECT_EQ(*found, kSeamCanaryDigest) << backend->description() << std::hex << ": 0x" << *found;
  }
}

TEST(SeamCanary, EveryBackendOfEveryAbilitySingsTheSame) {
  const auto expected = seam_canary_abilities_digest(reference());
  ASSERT_TRUE(expected.ok()) << expected.error().to_string();
  EXPECT_EQ(*expected, kSeamCanaryAbilitiesDigest) << std::hex << "0x" << *expected;
  for (const auto& backend : all_backends()) {
    if (!has_every_ability(*backend)) continue;
    const auto found = seam_canary_abilities_digest(*backend);
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    EXPECT_EQ(*found, kSeamCanaryAbilitiesDigest) << backend->description() << std::hex << ": 0x" << *found;
  }
}

}  // namespace
}  // namespace nibble::kernels::test
