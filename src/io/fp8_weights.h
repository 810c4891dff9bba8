// FP8 weights in GGUF: T of dtype F8_E4M3FN [n_in, n_out] with a companion T.fp8_scale in F32 of shape [1], [n_out] or
// [ceil(n_in / 128), ceil(n_out / 128)]. docs/formats.md is the reference; io/checkpoint.h loads and verifies.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "io/gguf.h"
#include "tensor/fp8_view.h"

namespace nibble {

constexpr std::string_view kFp8ScaleSuffix = ".fp8_scale";

// By its name a companion of some weight, FP8 or NVFP4.
bool is_companion(std::string_view tensor_name);
// A tensor of 8-bit floats that are weights, and not the scales of some.
bool is_fp8_weight(const TensorView& tensor);

// Scales of FP8 without their weight.
void check_fp8_orphans(const GgufFile& file, std::vector<Error>& faults);
// Every check of one weight; the view only if there was no fault. `pool` may be null.
std::optional<Fp8View> check_fp8_weight(const GgufFile& file, const TensorView& weight, ThreadPool* pool,
                                        std::vector<Error>& faults);

}  // namespace nibble
