// Replays the fuzzer's corpus, so that what it once found stays fixed in every build.
#include <gtest/gtest.h>

#include <filesystem>

#include "fuzz/gguf_fuzz.h"
#include "tests/base/temp_dir.h"

namespace nibble {
namespace {

TEST(GgufCorpus, Replays) {
  int n_files = 0;
  int n_gguf = 0;
  for (const auto& entry : std::filesystem::directory_iterator(NIBBLE_SOURCE_DIR "/fuzz/corpus/gguf")) {
    SCOPED_TRACE(entry.path().string());
    const std::vector<char> bytes = testing::read_file(entry.path().string());
    n_gguf += fuzz::visit_gguf(std::as_bytes(std::span(bytes))) ? 1 : 0;
    ++n_files;
  }
  EXPECT_GE(n_files, 10);
  EXPECT_GE(n_gguf, 5);  // the corpus is not all garbage
}

}  // namespace
}  // namespace nibble
