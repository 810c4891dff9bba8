// One row of bench op: what ran where, how long it took, and what that is beside the limit.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "measure/facts.h"
#include "measure/op_layer.h"
#include "measure/op_limits.h"

namespace nibble::measure {

constexpr int kGemvTokens = 16;  // more are a gemm

struct OpRow {
  std::string format;
  OpShape shape;
  int m = 0;        // that ran
  int m_asked = 0;  // that were asked for, where they are more
  OpMachine machine;
  std::string data = {};
  std::size_t bytes = 0;        // of one matrix
  std::size_t limit_bytes = 0;  // of the buffer whose reading is the limit
  std::vector<double> seconds = {};
  std::string peer = {};  // what runs beside it, in its words
  std::vector<double> peer_seconds = {};
  std::string digest = {};

  bool is_gemv() const { return m <= kGemvTokens; }
  double ops() const { return 2.0 * m * shape.n * shape.k; }
  std::string name() const;                    // "gemv nvfp4 m=1 n=4096 k=4096, avx2, 2 threads"
  Json to_json(const OpLimits& limits) const;  // op_bench.h says what of

 private:
  double rate(double s) const { return (is_gemv() ? static_cast<double>(bytes) : ops()) / s * 1e-9; }
  void add_peer(Json& json) const;
};

}  // namespace nibble::measure
