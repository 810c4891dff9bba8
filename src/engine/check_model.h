// Everything that `nibble verify` looks at: the file's checkpoint rules (io) and, if the family is known, whether the
// hyper-parameters, tokenizer and chat template can be used with its tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/thread_pool.h"
#include "io/checkpoint.h"

namespace nibble::engine {

using CheckProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

// A file that cannot be opened is a report with that one fault. `pool` may be null.
CheckReport check_model(const std::string& path, ThreadPool* pool, const CheckProgress& progress = {});

}  // namespace nibble::engine
