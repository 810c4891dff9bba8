#include "apps/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace nibble::apps {

int fail(const Error& error) {
  say("error: {}\n", error.to_string());
  return 1;
}

Progress::Progress(std::string label, std::uint64_t total_bytes)
    : label_(std::move(label)), total_(std::max<std::uint64_t>(total_bytes, 1)), terminal_(isatty(STDERR_FILENO) == 1) {
  update(0);
}

Progress::~Progress() {
  if (terminal_) say("\n");
}

void Progress::update(std::uint64_t done_bytes) {
  const int step = terminal_ ? 1 : 10;
  const int percent = static_cast<int>(std::min(done_bytes, total_) * 100 / total_) / step * step;
  if (percent == shown_) return;
  shown_ = percent;
  if (terminal_) {
    constexpr int kWidth = 30;
    const int filled = percent * kWidth / 100;
    say("\r{} [{}{}] {:3d}% of {}", label_, std::string(filled, '#'), std::string(kWidth - filled, ' '), percent,
        human_bytes(total_));
  } else {
    say("{}: {}% of {}\n", label_, percent, human_bytes(total_));
  }
}

std::string human_bytes(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

bool write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return true;
  if (errno == EPIPE) std::clearerr(stdout);
  return false;
}

}  // namespace nibble::apps
