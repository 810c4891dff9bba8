// Which CPUs this process may use, and threads that stay where they are put. Where the system has no such thing
// (macOS), there are no cores to tell and nothing is ever put anywhere.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace nibble {

// The calling thread's affinity mask, core by core: the CPUs (hardware threads) of each physical core that are in it.
std::vector<std::vector<int>> usable_cores();

// How many CPUs' worth of time the process's control group grants, rounded up; 0 where it sets no limit.
int cpu_quota();

// Where a thread may run, as the system keeps it.
struct CpuMask {
  alignas(8) std::array<std::byte, 128> bits{};
  bool is_known = false;

  bool operator==(const CpuMask&) const = default;
};
CpuMask mask_of(std::span<const int> cpus);
CpuMask mask_of_this_thread();
// The calling thread runs there only, from now on. Where the system refuses, or the mask is not known, nothing changes.
void stay_in(const CpuMask& mask);

}  // namespace nibble
