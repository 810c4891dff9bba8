// Replays fuzz/corpus/chat_template: what the fuzz target once found interesting holds in every build.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "fuzz/chat_template_fuzz.h"

namespace nibble::text {
namespace {

TEST(ChatTemplateCorpus, EveryInputHolds) {
  int n_inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(NIBBLE_SOURCE_DIR "/fuzz/corpus/chat_template")) {
    SCOPED_TRACE(entry.path().filename());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    fuzz::check_template(input);
    ++n_inputs;
  }
  EXPECT_GE(n_inputs, 20);
}

}  // namespace
}  // namespace nibble::text
