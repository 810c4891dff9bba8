// The limits that a row is held against, the best that was seen of each in a run: noise only takes away.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "base/result.h"
#include "measure/facts.h"
#include "measure/op_layer.h"

namespace nibble::measure {

class OpLimits {
 public:
  // Measure; `once`: only what has not been measured yet.
  void read(int threads, std::size_t bytes, bool once = false);
  Status integer(const OpMachine& machine, bool once = false);
  // All that has been measured, once more, while `may_go_on` says so.
  template <typename Predicate>
  Status again(const Predicate& may_go_on) {
    for (const auto& [key, rate] : read_) {
      if (may_go_on()) read(key.first, key.second);
    }
    for (const auto& [key, rate] : integer_) {
      if (may_go_on()) NIBBLE_TRY(integer({.isa = key.first, .threads = key.second}));
    }
    return ok_status();
  }

  double best_read(int threads, std::size_t bytes) const { return read_.at({threads, bytes}); }
  double best_integer(const OpMachine& machine) const { return integer_.at({machine.isa, machine.threads}); }
  Json to_json() const;  // {"read_gb_per_s": {threads: x}, "int16_gop_per_s": {isa: {threads: x}}}

 private:
  std::map<std::pair<int, std::size_t>, double> read_;
  std::map<std::pair<std::string, int>, double> integer_;
};

}  // namespace nibble::measure
