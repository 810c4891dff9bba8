// What this machine's CPU could do at best. A speed means something only beside the limit measured in the same run.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble::kernels {

// Instruction sets of the cpu backend that can be used here, the best first.
std::vector<std::string_view> cpu_isa_names();
// The one that "auto" is: what NIBBLE_ISA names, otherwise the best.
Result<std::string_view> cpu_auto_isa();

constexpr std::size_t kReadBytes = std::size_t{256} << 20;  // no cache of a machine at hand holds them

// GB/s of reading `n_bytes` again and again with that many threads, the best of several passes: from memory as it
// stands, from a cache where they fit into one. About a tenth of a second.
double read_bandwidth(int n_threads, std::size_t n_bytes = kReadBytes);

// GOP/s of this instruction set's dot product of int16 pairs (a multiplication and an addition are two), the best of
// several passes. About a tenth of a second.
Result<double> integer_peak(std::string_view isa, int n_threads);

}  // namespace nibble::kernels
