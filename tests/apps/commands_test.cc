// What a person sees of the commands on a small model, where it went wrong once.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/apps/run_nibble.h"
#include "tests/engine/tiny_model.h"

namespace nibble::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string tiny(const TinySpec& spec = {}) {
  return write_tiny_model(spec, "apps.gguf");
}

TEST(Commands, ARunAndItsReplay) {
  const std::string model = tiny();
  const std::string receipt = test_folder() + "/receipt.json";
  const Outcome run = run_nibble({"run", model, "-p", "the", "-n", "3", "--receipt", receipt});
  EXPECT_EQ(run.status, 0) << run.err;
  const Outcome replay = run_nibble({"replay", receipt, "--model", model, "--isa", "scalar", "--threads", "2"});
  EXPECT_EQ(replay.status, 0) << replay.err;
  EXPECT_THAT(replay.out, StartsWith("identical: "));
}

// Before the work starts: the model that would be loaded does not exist.
TEST(Commands, OutputPathsAreTriedFirst) {
  const std::string model = tiny();
  const std::string folder = test_folder();
  for (const std::string& path : {folder + "/none/out", folder, std::string("/dev/null"), std::string("/proc/out")}) {
    const Outcome run = run_nibble({"run", "no/such/model.gguf", "-p", "x", "--receipt", path});
    EXPECT_EQ(run.status, 1) << path;
    EXPECT_THAT(run.err, AllOf(HasSubstr(path), Not(HasSubstr("no/such/model.gguf")))) << path;
    const Outcome quantize = run_nibble({"quantize", model, "-o", path});
    EXPECT_EQ(quantize.status, 1) << path;
    EXPECT_THAT(quantize.err, AllOf(HasSubstr(path), Not(HasSubstr("hashing")))) << path;
  }
  std::size_t left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    left += entry.path().filename().string().find(".partial") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(left, 0u);
}

TEST(Commands, InspectShowsTheScalesOfAWeight) {
  const Outcome outcome = run_nibble({"inspect", tiny(), "--tensor", "blk.0.attn_q.weight.nvfp4_scale"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("F8_E4M3FN"), HasSubstr("first values"), HasSubstr("rms")));
}

TEST(Commands, MetadataIsCalledAKey) {
  const Outcome outcome = run_nibble({"verify", tiny({.architecture = "mamba"})});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("key:      general.architecture"), Not(HasSubstr("tensor: "))));
  const Outcome json = run_nibble({"verify", "--json", tiny({.architecture = "mamba"})});
  EXPECT_THAT(json.out, HasSubstr(R"("tensor": "general.architecture")"));  // the field of a fault's subject
}

TEST(Commands, InvalidUtf8IsTheInputsFault) {
  const std::string model = tiny();
  const std::string file = test_folder() + "/prompt.txt";
  std::ofstream(file) << "abc\xFF";
  const Outcome run = run_nibble({"run", model, "--chat", "-f", file});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("is not valid UTF-8"), HasSubstr("offset 3"), HasSubstr(file)));
  const Outcome chat = run_shell(R"(printf 'hi\377\n' | )" + nibble_program() + " chat " + quoted(model) + " -n 1");
  EXPECT_EQ(chat.status, 1);
  EXPECT_THAT(chat.err, AllOf(HasSubstr("the content of the user is not valid UTF-8"), HasSubstr("0xFF at offset 2"),
                              Not(HasSubstr("template"))));
}

TEST(Commands, NonFiniteValuesNameTheFile) {
  const std::string model = tiny({.norm_weight = INFINITY});
  const Outcome outcome = run_nibble({"run", model, "-p", "the", "-n", "1"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("not finite"), HasSubstr("file:     " + model)));
}

TEST(Commands, ControlCAtThePromptLeavesChat) {
  const std::string folder = quoted(test_folder());
  const Outcome outcome =
      run_shell("cd " + folder + " && mkfifo input && {\n" + nibble_program() + " chat " + quoted(tiny()) +
                " -n 1 <input >answer & pid=$!\n"
                "exec 3>input; echo hi >&3\n"
                "until [ -s answer ]; do sleep 0.1; done; sleep 0.5\n"
                "kill -INT $pid; wait $pid; }");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

// Sanitizers and emulators need an address space of their own.
TEST(Commands, MemoryThatIsNotThereIsARefusalWithTheNumbers) {
  if (NIBBLE_OWN_ADDRESS_SPACE == 0) GTEST_SKIP() << "the address space cannot be limited in this build";
  const std::string model = tiny({.context_length = 1U << 24});
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
