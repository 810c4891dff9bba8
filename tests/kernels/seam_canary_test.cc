#include "kernels/seam_canary.h"

#include "tests/kernels/backend_fixture.h"
#include "tests/kernels/oracle_backend.h"

namespace nibble::kernels::test {
namespace {

TEST(SeamCanary, EveryBackendSingsTheSame) {
  for (const ActivationFormat format : {ActivationFormat::kA11, ActivationFormat::kA16Q8, ActivationFormat::kW4A4}) {
    const auto sings = [format](Backend& backend, const std::string& who) {
      const auto found = seam_canary_digest(backend, format);
      ASSERT_TRUE(found.ok()) << found.error().to_string();
      EXPECT_EQ(*found, seam_canary_expected(format))
          << who << ", " << activation_format_name(format) << std::hex << ": 0x" << *found;
    };
    const auto oracle = make_oracle_backend();
    sings(*oracle, "the oracle");
    for (const auto& backend : all_backends()) {
      if (backend->use_activations(format).ok()) sings(*backend, backend->description());
      ASSERT_TRUE(backend->use_activations(ActivationFormat::kA11).ok());
    }
  }
}

TEST(SeamCanary, IsCheckedForAllThatABackendHas) {
  for (const auto& backend : all_backends()) {
    const Status status = check_seam_canary(*backend);
    EXPECT_TRUE(status.ok()) << status.error().to_string();
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
