// What a model wants of a machine's memory, and the refusal that shows the arithmetic.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace nibble::kernels {

struct MemoryNeed {
  std::uint64_t weights = 0;
  std::uint64_t kv_cache = 0;
  std::uint64_t scratch = 0;
};

Status check_fits(const MemoryNeed& need, std::uint64_t free, std::uint64_t total, const std::string& machine);

}  // namespace nibble::kernels
