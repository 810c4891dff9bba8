// What every backend says of weights that cannot be computed with.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "tensor/nvfp4_view.h"
#include "tensor/tensor_view.h"

namespace nibble::kernels {

// A value of `view` is NaN or infinite.
Error nonfinite_weights(const TensorView& view);
// The scale of the block that holds element [row, column] is NaN or infinite.
Error nonfinite_scale(const TensorView& view, std::uint64_t row, std::uint64_t column);
// Contract w4a4 encodes activations with it.
Error no_input_scale(const Nvfp4View& view);

}  // namespace nibble::kernels
