#include "base/machine.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/cpus.h"

namespace nibble {

std::string cpu_model_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  utsname system{};
  return uname(&system) == 0 ? system.machine : "unknown";
}

std::string operating_system() {
  utsname system{};
  if (uname(&system) != 0) return "unknown";
  return std::string(system.sysname) + " " + system.release + " " + system.machine;
}

int hardware_threads() {
  int n = 0;
  for (const std::vector<int>& core : usable_cores()) n += static_cast<int>(core.size());
  if (n == 0) n = static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
  const int quota = cpu_quota();
  return quota > 0 ? std::min(n, quota) : n;
}

std::uint64_t physical_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page) : 0;
}

std::uint64_t last_level_cache_bytes() {
  constexpr std::uint64_t kUnknown = std::uint64_t{32} << 20;
  for (const int level : {3, 2}) {
    std::ifstream size("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(level) + "/size");
    std::uint64_t value = 0;
    char unit = 0;
    if (size >> value >> unit && value > 0) return unit == 'M' ? value << 20 : value << 10;
  }
  return kUnknown;
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return file ? resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

std::uint64_t peak_resident_bytes() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::uint64_t>(usage.ru_maxrss) * 1024 : 0;
}

}  // namespace nibble
