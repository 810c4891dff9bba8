// Facts about the machine and the process, for receipts and `nibble doctor`.
#pragma once

#include <cstdint>
#include <string>

namespace nibble {

std::string cpu_model_name();    // "AMD EPYC 9654", or the architecture's name where the system does not say
std::string operating_system();  // "Linux 6.1.0 x86_64"
int hardware_threads();  // of this process's affinity mask, within its control group's share of time; at least 1
std::uint64_t physical_memory_bytes();
std::uint64_t last_level_cache_bytes();  // 32 MiB where the system does not say
// What this process may still allocate: free and reclaimable memory and swap, within the limits of its address space
// and of its control group. An estimate: other processes share it.
std::uint64_t available_memory_bytes();
std::uint64_t resident_bytes();       // of this process now; 0 where the system does not say
std::uint64_t peak_resident_bytes();  // of this process so far

}  // namespace nibble
