#include "base/cpus.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <string>

#ifdef __linux__
#include <sched.h>
#endif

namespace nibble {
namespace {

// Equal for the hardware threads of one core; where the system does not say, every one is a core.
[[maybe_unused]] std::string core_of(int cpu) {
  const std::string name = "cpu" + std::to_string(cpu);
  std::ifstream file("/sys/devices/system/cpu/" + name + "/topology/thread_siblings_list");
  std::string siblings;
  return std::getline(file, siblings) ? siblings : name;
}

// The path of the control group (version 2), "" for the root, which is what a container sees of its own.
std::string control_group() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::/")) return line == "0::/" ? "" : line.substr(3);
  }
  return "";
}

}  // namespace

std::vector<std::vector<int>> usable_cores() {
  std::vector<std::vector<int>> cores;
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {};
  std::map<std::string, std::size_t> known;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    const auto [core, is_new] = known.try_emplace(core_of(cpu), cores.size());
    if (is_new) cores.emplace_back();
    cores[core->second].push_back(cpu);
  }
#endif
  return cores;
}

int cpu_quota() {
  int least = std::numeric_limits<int>::max();
  for (std::string group = control_group();; group.resize(group.rfind('/'))) {  // a parent's limit holds as well
    std::ifstream file("/sys/fs/cgroup" + group + "/cpu.max");
    long long quota = 0, period = 0;
    if (file >> quota >> period && quota > 0 && period > 0) {
      least = static_cast<int>(std::min<long long>(least, (quota + period - 1) / period));
    }
    if (group.empty()) break;
  }
  return least == std::numeric_limits<int>::max() ? 0 : least;
}

CpuMask mask_of([[maybe_unused]] std::span<const int> cpus) {
  CpuMask mask;
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  static_assert(sizeof set == sizeof mask.bits);
  std::memcpy(mask.bits.data(), &set, sizeof set);
  mask.is_known = true;
#endif
  return mask;
}

CpuMask mask_of_this_thread() {
  CpuMask mask;
#ifdef __linux__
  cpu_set_t set;
  mask.is_known = sched_getaffinity(0, sizeof set, &set) == 0;
  std::memcpy(mask.bits.data(), &set, sizeof set);
#endif
  return mask;
}

void stay_in([[maybe_unused]] const CpuMask& mask) {
#ifdef __linux__
  if (!mask.is_known) return;
  cpu_set_t set;
  std::memcpy(&set, mask.bits.data(), sizeof set);
  sched_setaffinity(0, sizeof set, &set);  // may fail: the CPU can have left the process's set since
#endif
}

}  // namespace nibble
