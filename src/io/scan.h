// Finds NaN and infinity in a tensor as it lies in the file, at the speed of memory.
#pragma once

#include <cstdint>
#include <functional>

#include "base/thread_pool.h"
#include "tensor/tensor_view.h"

namespace nibble {

struct NonFinite {
  std::uint64_t count = 0;
  std::uint64_t first = 0;  // index of the first, when count > 0
  std::uint64_t unit = 1;   // elements that one index stands for: the block, where a non-finite scale spoils it whole
};

// Elements of F32, F16, BF16 and F8_E4M3FN, and the f16 scales of block types; other types have nothing to find.
// The result does not depend on the number of threads. `pool` may be null.
using ScanProgress = std::function<void(std::uint64_t bytes)>;  // of the tensor, looked at so far
NonFinite find_non_finite(const TensorView& tensor, ThreadPool* pool, const ScanProgress& progress = {});

}  // namespace nibble
