#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "base/machine.h"

namespace nibble {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// The number after `name` in a file of lines "name number ..."; with an empty name, the number that the file is.
std::optional<std::uint64_t> number_in(const char* path, const std::string& name) {
  std::ifstream file(path);
  std::string word = name;
  std::uint64_t number = 0;
  for (std::string line; !name.empty() && file >> word && word != name;) std::getline(file, line);
  if (word != name || !(file >> number)) return std::nullopt;  // "max": no limit
  return number;
}

std::uint64_t minus(std::uint64_t limit, std::uint64_t used) {
  return limit > used ? limit - used : 0;
}

std::uint64_t system_memory() {
  constexpr std::uint64_t kUnit = 1024;
  const auto available = number_in("/proc/meminfo", "MemAvailable:");
  if (!available) return physical_memory_bytes() > 0 ? physical_memory_bytes() : kUnlimited;
  return (*available + number_in("/proc/meminfo", "SwapFree:").value_or(0)) * kUnit;
}

// As a container sees its own limit (control groups, version 2); pages of files give way.
std::uint64_t group_memory() {
  const auto limit = number_in("/sys/fs/cgroup/memory.max", "");
  const auto used = number_in("/sys/fs/cgroup/memory.current", "");
  if (!limit || !used) return kUnlimited;
  return minus(*limit, minus(*used, number_in("/sys/fs/cgroup/memory.stat", "file").value_or(0)));
}

std::uint64_t address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const std::uint64_t page = static_cast<std::uint64_t>(std::max(sysconf(_SC_PAGE_SIZE), 0L));
  return minus(limit.rlim_cur, number_in("/proc/self/statm", "").value_or(0) * page);
}

}  // namespace

std::uint64_t available_memory_bytes() {
  return std::min({system_memory(), group_memory(), address_space()});
}

}  // namespace nibble
