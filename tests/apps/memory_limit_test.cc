// Under a limit of the address space (ulimit -v). Not in builds that need the address space for themselves: sanitizers,
// emulators.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/run_nibble.h"
#include "tests/engine/tiny_model.h"

namespace nibble::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(MemoryLimit, IsARefusalWithTheNumbers) {
  const std::string model = write_tiny_model({.context_length = 1U << 24}, "apps.gguf");
  const std::string command = nibble_program() + " run " + quoted(model) + " -p the -n 1 --threads 1";
  // The context does not fit; then, under one limit after another, whatever else cannot be had.
  const Outcome context = run_shell("ulimit -v 1500000; " + command + " --ctx 16777216");
  EXPECT_EQ(context.status, 1) << context.err;
  EXPECT_THAT(context.err, AllOf(StartsWith("error: not enough memory for a context of 16777216 positions"),
                                 HasSubstr("MB available"), HasSubstr("MB more, "), HasSubstr("smaller --ctx")));
  for (const int limit : {20'000, 30'000, 40'000, 60'000, 80'000, 100'000, 150'000}) {
    const Outcome outcome = run_shell(fmt::format("ulimit -v {}; {} --ctx 64", limit, command));
    if (outcome.status == 127 || outcome.status == 0) continue;  // the loader of the system failed, or there was enough
    EXPECT_EQ(outcome.status, 1) << limit << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith("error: not enough memory")) << limit;
  }
}

}  // namespace
}  // namespace nibble::testing
