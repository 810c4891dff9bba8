#include "tensor/dtype.h"

#include "base/check.h"

namespace nibble {
namespace {

constexpr DTypeInfo kTypes[] = {
    {DType::kF32, "F32", 1, 4},
    {DType::kF16, "F16", 1, 2},
    {DType::kQ4_0, "Q4_0", 32, 18},
    {DType::kQ4_1, "Q4_1", 32, 20},
    {DType::kQ5_0, "Q5_0", 32, 22},
    {DType::kQ5_1, "Q5_1", 32, 24},
    {DType::kQ8_0, "Q8_0", 32, 34},
    {DType::kQ8_1, "Q8_1", 32, 36},
    {DType::kQ2_K, "Q2_K", 256, 84},
    {DType::kQ3_K, "Q3_K", 256, 110},
    {DType::kQ4_K, "Q4_K", 256, 144},
    {DType::kQ5_K, "Q5_K", 256, 176},
    {DType::kQ6_K, "Q6_K", 256, 210},
    {DType::kQ8_K, "Q8_K", 256, 292},
    {DType::kIQ2_XXS, "IQ2_XXS", 256, 66},
    {DType::kIQ2_XS, "IQ2_XS", 256, 74},
    {DType::kIQ3_XXS, "IQ3_XXS", 256, 98},
    {DType::kIQ1_S, "IQ1_S", 256, 50},
    {DType::kIQ4_NL, "IQ4_NL", 32, 18},
    {DType::kIQ3_S, "IQ3_S", 256, 110},
    {DType::kIQ2_S, "IQ2_S", 256, 82},
    {DType::kIQ4_XS, "IQ4_XS", 256, 136},
    {DType::kI8, "I8", 1, 1},
    {DType::kI16, "I16", 1, 2},
    {DType::kI32, "I32", 1, 4},
    {DType::kI64, "I64", 1, 8},
    {DType::kF64, "F64", 1, 8},
    {DType::kIQ1_M, "IQ1_M", 256, 56},
    {DType::kBF16, "BF16", 1, 2},
    {DType::kTQ1_0, "TQ1_0", 256, 54},
    {DType::kTQ2_0, "TQ2_0", 256, 66},
    {DType::kMXFP4, "MXFP4", 32, 17},
    {DType::kGgmlNVFP4, "NVFP4", 64, 36},
    {DType::kNVFP4_E2M1, "NVFP4_E2M1", 2, 1},
    {DType::kF8_E4M3FN, "F8_E4M3FN", 1, 1},
};

}  // namespace

const DTypeInfo* find_dtype(std::uint32_t id) {
  for (const DTypeInfo& info : kTypes) {
    if (static_cast<std::uint32_t>(info.dtype) == id) return &info;
  }
  return nullptr;
}

const DTypeInfo& dtype_info(DType dtype) {
  const DTypeInfo* info = find_dtype(static_cast<std::uint32_t>(dtype));
  NIBBLE_CHECK(info != nullptr, "a DType outside of the table");
  return *info;
}

std::uint64_t bytes_of(DType dtype, std::uint64_t n) {
  const DTypeInfo& info = dtype_info(dtype);
  NIBBLE_CHECK(n % info.block_size == 0, "a count of elements that is not a multiple of the block");
  return n / info.block_size * info.block_bytes;
}

std::optional<std::uint64_t> checked_bytes(DType dtype, const Shape& shape) {
  const DTypeInfo& info = dtype_info(dtype);
  if (shape.cols() % info.block_size != 0) return std::nullopt;
  std::uint64_t n = 1;
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    if (__builtin_mul_overflow(n, shape.dim(i), &n)) return std::nullopt;
  }
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(n / info.block_size, info.block_bytes, &bytes)) return std::nullopt;
  // Elements are bounded as well as bytes: a 4-bit tensor's element count must fit a signed index too.
  if ((n | bytes) >> 63) return std::nullopt;
  return bytes;
}

}  // namespace nibble
