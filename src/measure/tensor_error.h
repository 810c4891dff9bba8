// How far each NVFP4 weight of a file is from its source, and how its codes and scales are used.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "io/checkpoint.h"
#include "io/tensor_stats.h"

namespace nibble::measure {

struct TensorError {
  std::string name;
  std::string kind;         // "attn_q"
  int layer = -1;           // -1: of no layer
  double relative_rms = 0;  // of the difference, over the source's; 0 without a source
  Nvfp4Stats stats;
};

// `source` may be null. In file order of the quantized model.
Result<std::vector<TensorError>> tensor_errors(const Checkpoint* source, const Checkpoint& quantized, ThreadPool& pool,
                                               const std::function<void(std::size_t, std::size_t)>& progress = {});

}  // namespace nibble::measure
