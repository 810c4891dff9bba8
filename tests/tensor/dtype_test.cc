#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include "tensor/tensor_view.h"

namespace nibble {
namespace {

TEST(Shape, MatricesAreColumnsFirst) {
  const Shape shape = {576, 1536};
  EXPECT_EQ(shape.cols(), 576U);
  EXPECT_EQ(shape.rows(), 1536U);
  EXPECT_EQ(shape.size(), 576U * 1536U);
  EXPECT_EQ(shape.to_string(), "[576, 1536]");
  EXPECT_EQ(Shape{}.size(), 1U);
  EXPECT_EQ((Shape{2, 3, 4, 5}).rows(), 60U);
  EXPECT_FALSE((Shape{4} == Shape{4, 1}));
}

TEST(DType, KnowsBlocksAndRefusesUnknownIds) {
  EXPECT_EQ(find_dtype(4), nullptr);
  EXPECT_EQ(find_dtype(999), nullptr);
  EXPECT_EQ(find_dtype(1000)->dtype, DType::kNVFP4_E2M1);
  EXPECT_EQ(dtype_name(DType::kQ6_K), "Q6_K");
  EXPECT_EQ(bytes_of(DType::kNVFP4_E2M1, 32), 16U);
  EXPECT_EQ(bytes_of(DType::kQ8_0, 64), 68U);
  EXPECT_EQ(bytes_of(DType::kQ6_K, 512), 420U);
}

TEST(DType, CheckedBytesNeverWraps) {
  EXPECT_EQ(checked_bytes(DType::kF32, Shape{3, 5}), 60U);
  EXPECT_EQ(checked_bytes(DType::kF32, Shape{}), 4U);
  EXPECT_EQ(checked_bytes(DType::kQ8_0, Shape{33, 32}), std::nullopt);
  const std::uint64_t big = std::uint64_t{1} << 32;
  EXPECT_EQ(checked_bytes(DType::kF32, Shape{big, big}), std::nullopt);
  EXPECT_EQ(checked_bytes(DType::kI8, Shape{big, big / 2}), std::nullopt);  // 2^63
  EXPECT_EQ(checked_bytes(DType::kI8, Shape{big, big / 4}), std::uint64_t{1} << 62);
  EXPECT_EQ(checked_bytes(DType::kF32, Shape{big, big / 4}), std::nullopt);  // 2^64 bytes
  EXPECT_EQ(checked_bytes(DType::kNVFP4_E2M1, Shape{big, big / 2}), std::nullopt);
}

TEST(TensorView, GivesItsRows) {
  const std::byte data[68] = {};
  const TensorView tensor{.name = "t", .dtype = DType::kQ8_0, .shape = {32, 2}, .bytes = data};
  EXPECT_EQ(tensor.row_bytes(), 34U);
  EXPECT_EQ(tensor.row_span(1).data(), data + 34);
  EXPECT_EQ(tensor.row_span(0, 2).size(), 68U);
}

}  // namespace
}  // namespace nibble
