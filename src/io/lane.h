// Which kinds of weights a model file has. The file decides; a user may assert it (--lane).
#pragma once

#include <string_view>

#include "base/result.h"
#include "io/gguf.h"

namespace nibble {

// A lane is what the linear layers are: NVFP4, or the types that GGUF has of its own. A file that has NVFP4 weights and
// weights that only contract nk1 computes with is mixed; floats and Q8_0 beside NVFP4 are not, for nc1 has them too.
enum class Lane { kNvfp4, kKquant, kMixed };

Lane lane_of(const GgufFile& file);
std::string_view lane_name(Lane lane);  // "nvfp4", "kquant", "mixed"

// A type that nk1 computes with and nc1 does not: Q4_0 to Q6_K but Q8_0.
bool needs_nk1(DType dtype);
const TensorView* first_that_needs_nk1(const GgufFile& file);  // nullptr: none

// Refuses a file of another lane than `wanted`; an empty `wanted` is any.
Status check_lane(const GgufFile& file, std::string_view wanted);

}  // namespace nibble
