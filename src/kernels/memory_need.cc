#include "kernels/memory_need.h"

#include <fmt/format.h>

namespace nibble::kernels {
namespace {

std::string gigabytes(std::uint64_t bytes) {
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) * 1e-9);
}

}  // namespace

Status check_fits(const MemoryNeed& need, std::uint64_t free, std::uint64_t total, const std::string& machine) {
  const std::uint64_t sum = need.weights + need.kv_cache + need.scratch;
  if (sum <= free) return ok_status();
  std::string parts;
  const auto add = [&parts](std::uint64_t bytes, const char* what) {
    if (bytes != 0) parts += fmt::format("{}{} of {}", parts.empty() ? "" : " + ", gigabytes(bytes), what);
  };
  add(need.weights, "weights");
  add(need.kv_cache, "KV cache");
  add(need.scratch, "scratch");
  return Error{.message = fmt::format("the model does not fit into the memory of {}", machine),
               .found = fmt::format("{} = {}", parts, gigabytes(sum)),
               .expected = fmt::format("at most {}, which are free of {}", gigabytes(free), gigabytes(total)),
               .hint = need.weights != 0
                           ? "end other programs on this GPU; or use {backend=cpu}"
                           : "pass a smaller {ctx}; or end other programs on this GPU; or use {backend=cpu}"};
}

}  // namespace nibble::kernels
