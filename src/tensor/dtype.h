// Element types of GGUF tensors, by the ids of the file format, with their block geometry.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/shape.h"

namespace nibble {

// 1000 and 1001 are the private ids of the native NVFP4 container; ggml's own NVFP4 (40) has scales inside its blocks.
enum class DType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kGgmlNVFP4 = 40,
  kNVFP4_E2M1 = 1000,
  kF8_E4M3FN = 1001,
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::uint32_t block_size;   // elements
  std::uint32_t block_bytes;  // bytes of one block
};

const DTypeInfo* find_dtype(std::uint32_t id);  // nullptr: an id that nibble does not know
const DTypeInfo& dtype_info(DType dtype);
inline std::string_view dtype_name(DType dtype) {
  return dtype_info(dtype).name;
}

// Bytes of `n` elements, n a multiple of the block size.
std::uint64_t bytes_of(DType dtype, std::uint64_t n);
// Bytes of a tensor; nullopt where the first dimension is not a multiple of the block size, or a product overflows
// 2^63.
std::optional<std::uint64_t> checked_bytes(DType dtype, const Shape& shape);

}  // namespace nibble
