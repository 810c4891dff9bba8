#include "kernels/native_hint.h"

#include <gtest/gtest.h>

#include "kernels/memory_need.h"
#include "kernels/registry.h"

namespace nibble::kernels {
namespace {

constexpr ActivationFormat kNatives[] = {ActivationFormat::kNative, ActivationFormat::kNativeFp4};
constexpr const char* kOtherContract = "use {contract=nc1}, which is the same on every backend";

std::string hint_in(ActivationFormat format, std::string hint) {
  return hint_for(format, Status(Error{.message = "m", .hint = std::move(hint)})).error().hint;
}

TEST(NativeHint, NamesNoOtherBackend) {
  for (const ActivationFormat format : kNatives) {
    EXPECT_EQ(hint_in(format, "{backend=cpu} gives the same answer"), kOtherContract);
    EXPECT_EQ(hint_in(format, "pass a smaller {ctx}; 'x' says why; or use {backend=cpu}"),
              std::string("pass a smaller {ctx}; 'x' says why; or ") + kOtherContract);
    EXPECT_EQ(hint_in(format, "use {contract=native}; or {contract=nc1}"), "use {contract=native}; or {contract=nc1}");
    EXPECT_EQ(hint_in(format, ""), "");
    const Status too_large = check_fits({.weights = 2}, 1, 2, "a GPU");
    EXPECT_EQ(hint_for(format, too_large).error().hint.find("{backend"), std::string::npos);
    EXPECT_TRUE(hint_for(format, ok_status()).ok());
  }
}

TEST(NativeHint, OtherContractsKeepTheirs) {
  for (const ActivationFormat format : {ActivationFormat::kA11, ActivationFormat::kA16Q8, ActivationFormat::kW4A4}) {
    EXPECT_EQ(hint_in(format, "{backend=cpu} gives the same answer"), "{backend=cpu} gives the same answer");
  }
}

TEST(NativeHint, ABackendThatIsNotHereIsNotTheCpu) {
  const auto metal = make_backend("metal", {});
  ASSERT_FALSE(metal.ok());
  EXPECT_NE(metal.error().hint.find("{backend=cpu}"), std::string::npos);
  EXPECT_EQ(in_native_contract(metal.error()).hint, kOtherContract);
}

}  // namespace
}  // namespace nibble::kernels
