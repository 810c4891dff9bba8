#include "measure/op_limits.h"

#include <algorithm>

#include "kernels/limits.h"

namespace nibble::measure {

void OpLimits::read(int threads, std::size_t bytes, bool once) {
  double& best = read_[{threads, bytes}];
  if (!once || best == 0) best = std::max(best, kernels::read_bandwidth(threads, bytes));
}

Status OpLimits::integer(const OpMachine& machine, bool once) {
  double& best = integer_[{machine.isa, machine.threads}];
  if (once && best > 0) return ok_status();
  NIBBLE_ASSIGN(const double found, kernels::integer_peak(machine.isa, machine.threads));
  best = std::max(best, found);
  return ok_status();
}

Json OpLimits::to_json() const {
  Json read = Json::object(), integer = Json::object();
  for (const auto& [key, rate] : read_) {
    if (key.second == kernels::kReadBytes) read[std::to_string(key.first)] = rate;
  }
  for (const auto& [key, rate] : integer_) integer[key.first][std::to_string(key.second)] = rate;
  return {{"read_gb_per_s", read}, {"int16_gop_per_s", integer}};
}

}  // namespace nibble::measure
