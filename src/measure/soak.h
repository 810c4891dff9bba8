// Hours of mixed work on one model: every prompt has one digest throughout, and memory does not grow.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "measure/subject.h"

namespace nibble::measure {

struct SoakOptions {
  double seconds = 3600;
  std::vector<int> threads = {1, 2, 3};       // a load each, in turn
  std::vector<int> chunks = {1, 7, 64, 256};  // of prefill, a session each, at random
  int runs_per_load = 40;
  std::uint64_t max_growth_bytes = 64U << 20;  // of resident memory between loads, after each thread count ran twice
};

struct SoakState {
  double seconds = 0;
  std::uint64_t runs = 0;
  std::uint64_t resident_bytes = 0;
};
using SoakProgress = std::function<void(const SoakState&)>;

// Loads the model, runs prompts at random over chunk sizes and states of the cache (empty, or whatever the run before
// left there), frees it, again and again until the time is over. Fails where a prompt's logits have another digest than
// the first time.
// {"what": "bench soak", program facts, "machine", "model", "settings", "seconds", "loads", "runs", "tokens",
// "prompts": [{"tokens", "generated", "temperature", "runs", "digest"}], "resident": {"baseline_bytes",
// "largest_bytes", "growth_bytes", "samples_bytes"}, "passed": memory did not grow by more than the limit}
Result<Json> soak(const Subject& subject, const SoakOptions& options, const SoakProgress& progress = {});

}  // namespace nibble::measure
