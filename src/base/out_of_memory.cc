#include "base/out_of_memory.h"

#include <fmt/format.h>

#include "base/machine.h"

namespace nibble {
namespace {

std::string megabytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

}  // namespace

Error not_enough_memory(const std::string& what, std::uint64_t needed_bytes, std::string hint) {
  return Error{.message = fmt::format("not enough memory for {}", what),
               .found = fmt::format("{} available", megabytes(available_memory_bytes())),
               .expected = needed_bytes > 0 ? fmt::format("{} more", megabytes(needed_bytes)) : "",
               .hint = hint.empty() ? "close other programs, or raise the limit of this process" : std::move(hint)};
}

}  // namespace nibble
