// A GGUF model in floats or k-quants, rewritten as a native NVFP4 container (io/nvfp4_container.h). Memory is bounded
// by some megabytes and one tensor's scales; the output is the same, byte for byte, for any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "quantize/nvfp4_recipe.h"
#include "quantize/plan.h"

namespace nibble {

struct QuantizeProgress {
  std::string_view phase;   // "hashing", "quantizing"
  std::string_view tensor;  // empty while hashing
  std::uint64_t done = 0;   // source bytes of this phase
  std::uint64_t total = 0;
};

struct QuantizeOptions {
  Recipe recipe = Recipe::kMse;
  HeadFormat head = HeadFormat::kF16;
  AttentionFormat attention = AttentionFormat::kNvfp4;
  // Called from the caller's thread; false stops, leaves no file and returns an Error.
  std::function<bool(const QuantizeProgress&)> progress = {};
};

// Error of the stored weights against the source's.
struct WeightError {
  double signal = 0;  // sum of squares of the source
  double noise = 0;   // sum of squares of the differences
  double relative_rms() const;
  double snr_db() const;  // infinite when nothing was lost
};

struct TensorSummary {
  std::string name;
  DType from = DType::kF32;
  DType to = DType::kF32;
  bool is_matrix = false;
  std::uint64_t n_weights = 0;
  WeightError error;
  std::string note;
};

struct KindSummary {
  std::string kind;  // "attn_q"
  DType to = DType::kF32;
  std::uint64_t n_tensors = 0;
  std::uint64_t n_weights = 0;
  WeightError error;
};

struct QuantizeSummary {
  std::uint64_t source_bytes = 0;
  std::uint64_t output_bytes = 0;
  std::string source_sha256;
  std::vector<TensorSummary> tensors;  // in file order

  std::vector<KindSummary> by_kind() const;  // of matrices, and of whatever lost something; largest error first
  std::vector<TensorSummary> worst(std::size_t n) const;  // NVFP4 tensors, largest error first
};

Result<QuantizeSummary> quantize_model(const std::string& source, const std::string& destination,
                                       const QuantizeOptions& options, ThreadPool& pool);

}  // namespace nibble
