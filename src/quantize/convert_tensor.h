// Streams one tensor of a plan into the writer, slab of rows by slab of rows.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "base/thread_pool.h"
#include "io/gguf.h"
#include "io/gguf_writer.h"
#include "quantize/nvfp4_recipe.h"
#include "quantize/plan.h"
#include "quantize/quantize_model.h"

namespace nibble {

// Declares what append_tensor will write: the tensor, and its companions.
void declare_tensor(const TensorPlan& plan, GgufWriter& writer);

// Hears how many of the tensor's source bytes are done; an Error ends the work.
using SourceProgress = std::function<Status(std::uint64_t source_bytes)>;

Result<TensorSummary> append_tensor(const GgufFile& source, const TensorPlan& plan, Recipe recipe, GgufWriter& writer,
                                    ThreadPool& pool, const SourceProgress& progress = {});

}  // namespace nibble
