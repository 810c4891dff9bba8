// What the commands print: errors and progress on stderr, output meant for a program on stdout.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace nibble::apps {

// A line for a person, on stderr. Where stderr cannot be written the work goes on: words are the least of it.
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

// Prints the error, one line first and details after, and returns exit status 1.
int fail(const Error& error);

// A bar that redraws itself on a terminal, and a plain line every tenth otherwise. Finished on destruction.
class Progress {
 public:
  Progress(std::string label, std::uint64_t total_bytes);
  ~Progress();
  void update(std::uint64_t done_bytes);

 private:
  std::string label_;
  std::uint64_t total_;
  bool terminal_;
  int shown_ = -1;
};

std::string human_bytes(std::uint64_t bytes);  // "97.7 MB", powers of 1000

// Writes to stdout at once; false when it cannot be written. A reader that has gone away is no fault of ours; anything
// else stays in ferror(stdout), and the command fails.
bool write_out(std::string_view text);

}  // namespace nibble::apps
