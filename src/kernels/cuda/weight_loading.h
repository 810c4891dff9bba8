// What loaders of weights share (weights.cc, weight_rows.cc).
#pragma once

#include <climits>
#include <string>
#include <string_view>

#include "kernels/cuda/weights.h"

namespace nibble::kernels::cuda {

constexpr std::uint64_t kRowAlign = 16;  // elements that a lane of linear_rows.cu loads at once
inline std::uint64_t row_stride(std::uint64_t n_in) {
  return (n_in + kRowAlign - 1) / kRowAlign * kRowAlign;
}

inline Status check_extent(std::string_view name, std::uint64_t rows, std::uint64_t cols) {
  constexpr std::uint64_t kMaxExtent = INT_MAX / 2;
  if (rows > 0 && cols > 0 && rows <= kMaxExtent && cols <= kMaxExtent) return ok_status();
  return Error{.message = "a linear layer has an impossible shape",
               .tensor = std::string(name),
               .found = std::to_string(cols) + " inputs, " + std::to_string(rows) + " outputs",
               .expected = "1 to " + std::to_string(kMaxExtent) + " of each"};
}

// False for a type without a kernel.
bool row_format(DType dtype, RowFormat& format);

inline Result<DeviceMemory> memory_for(std::string_view tensor, std::size_t bytes) {
  return DeviceMemory::allocate(bytes, "weights of " + std::string(tensor));
}

// What failed while this tensor was loaded.
inline Error about(std::string_view tensor, Error error) {
  if (error.tensor.empty()) error.tensor = std::string(tensor);
  return error;
}

}  // namespace nibble::kernels::cuda
