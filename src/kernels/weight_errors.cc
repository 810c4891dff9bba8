#include "kernels/weight_errors.h"

#include <fmt/format.h>

#include <string>

namespace nibble::kernels {
namespace {

Error nonfinite(const TensorView& view, std::string found, std::string expected) {
  return Error{.message = "weights are not finite",
               .tensor = std::string(view.name),
               .found = std::move(found),
               .expected = std::move(expected),
               .hint = "the file is damaged or was exported from a diverged model; get it again"};
}

}  // namespace

Error nonfinite_weights(const TensorView& view) {
  return nonfinite(view, "a NaN or an infinity", fmt::format("finite {} values", dtype_name(view.dtype)));
}

Error nonfinite_scale(const TensorView& view, std::uint64_t row, std::uint64_t column) {
  return nonfinite(view,
                   fmt::format("a scale that is NaN or infinite in row {}, block {}", row,
                               column / dtype_info(view.dtype).block_size),
                   "finite scales");
}

Error no_input_scale(const Nvfp4View& view) {
  return Error{.message = "contract w4a4 computes with the input scales of NVFP4 weights",
               .tensor = std::string(view.name),
               .found = "no input scale",
               .expected = "one for every NVFP4 weight"};
}

}  // namespace nibble::kernels
