// An output never takes the place of what its command reads, and is tried before the work: the models of these
// commands are whole files, and each is found as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/apps/run_nibble.h"
#include "tests/engine/tiny_model.h"

namespace nibble::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Arguments = std::vector<std::string>;

constexpr const char* kNoModel = "no/such/model.gguf";

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string text_file(const std::string& name, const std::string& text) {
  const std::string path = test_folder() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

// All that write, of `model` and `text`; the place to write is the next argument.
std::vector<Arguments> writers(const std::string& model, const std::string& text) {
  return {{"quantize", model, "-o"},
          {"run", model, "-f", text, "-n", "2", "--receipt"},
          {"ppl", model, "-f", text, "-o"},
          {"compare", model, model, "-f", text, "-o"},
          {"report", model, "-o"},
          {"bench", "decode", model, "-f", text, "-o"},
          {"bench", "prefill", model, "-f", text, "-o"},
          {"bench", "load", model, "-o"},
          {"bench", "soak", model, "--minutes", "0", "-o"}};
}

Outcome run_with(Arguments command, const std::string& last) {
  command.push_back(last);
  return run_nibble(command);
}

void expect_refused(const Outcome& outcome, const std::string& output) {
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, StartsWith("error: cannot write " + output + ": it is an input itself\n"));
}

TEST(OutputPath, IsNeverTheModel) {
  const std::string model = write_tiny_model({}, "model.gguf"), before = contents(model);
  const std::string text = text_file("text.txt", "the the the the");
  const std::string symbolic = test_folder() + "/symbolic.gguf", hard = test_folder() + "/hard.gguf";
  std::filesystem::create_symlink(model, symbolic);
  std::filesystem::create_hard_link(model, hard);
  for (const Arguments& command : writers(model, text)) {
    for (const std::string& output : {model, symbolic, hard}) {
      SCOPED_TRACE(command[0] + " " + command[1]);
      expect_refused(run_with(command, output), output);
    }
    ASSERT_EQ(contents(model), before);
  }
}

TEST(OutputPath, IsNeverAnotherInput) {
  const std::string model = write_tiny_model({}, "model.gguf");
  const std::string text = text_file("text.txt", "the the the the"), receipt = text_file("bits_bits.svg", "{}");
  for (const Arguments& command : writers(model, text)) {
    if (std::find(command.begin(), command.end(), text) == command.end()) continue;
    SCOPED_TRACE(command[0] + " " + command[1]);
    expect_refused(run_with(command, text), text);
  }
  expect_refused(run_nibble({"report", model, "--speed", receipt, "-o", receipt}), receipt);
  expect_refused(run_nibble({"report", model, "--quality", receipt, "--svg", test_folder() + "/bits"}), receipt);
  expect_refused(
      run_shell(nibble_program() + " run " + quoted(model) + " -f - --receipt " + quoted(text) + " <" + quoted(text)),
      text);
  EXPECT_EQ(contents(text), "the the the the");
  EXPECT_EQ(contents(receipt), "{}");
}

TEST(OutputPath, IsNoPartOfASplitModel) {
  const std::string part = text_file("m-00002-of-00003.gguf", "the second");
  const std::string first = test_folder() + "/m-00001-of-00003.gguf";
  for (const Arguments& command : writers(first, part)) {
    if (command[0] == "quantize") continue;  // it opens the source to know its parts, and the first is not there
    SCOPED_TRACE(command[0] + " " + command[1]);
    expect_refused(run_with(command, part), part);
  }
}

// Before the work starts: the model that would be loaded does not exist.
TEST(OutputPath, IsTriedFirst) {
  const std::string text = text_file("text.txt", "the the the the");
  std::vector<Arguments> commands = writers(kNoModel, text);
  commands.erase(commands.begin());  // quantize opens its source first; see Commands.OutputPathsAreTriedFirst
  commands.push_back({"bench", "op", "--quick", "-o"});
  commands.push_back({"report", kNoModel, "--svg"});
  for (const Arguments& command : commands) {
    SCOPED_TRACE(command[0] + " " + command[1]);
    const Outcome outcome = run_with(command, test_folder() + "/none/out");
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err,
                AllOf(StartsWith("error: cannot create "), HasSubstr("/none must exist"), Not(HasSubstr(kNoModel))));
  }
}

}  // namespace
}  // namespace nibble::testing
