// Blocks worked out by hand; tests/io/dequantize_reference.py compares every type with the gguf package.
#include "io/dequantize.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/io/gguf_builder.h"

namespace nibble {
namespace {

using testing::Bytes;

constexpr std::uint16_t kOne = 0x3C00;   // 1.0 as f16
constexpr std::uint16_t kHalf = 0x3800;  // 0.5

std::vector<float> decode(DType dtype, const Bytes& block) {
  std::vector<float> out(dtype_info(dtype).block_size);
  dequantize(dtype, block.span(), out);
  return out;
}

TEST(Dequantize, SmallBlocks) {
  Bytes codes;
  for (int i = 0; i < 16; ++i) codes.put<std::uint8_t>(static_cast<std::uint8_t>(i | (15 - i) << 4));
  const std::vector<float> q4_0 = decode(DType::kQ4_0, Bytes().put(kHalf).append(codes));
  EXPECT_EQ(q4_0[0], -4.0F);
  EXPECT_EQ(q4_0[15], 3.5F);
  EXPECT_EQ(q4_0[16], 3.5F);
  const std::vector<float> q4_1 = decode(DType::kQ4_1, Bytes().put(kHalf).put(kOne).append(codes));
  EXPECT_EQ(q4_1[3], 2.5F);
  EXPECT_EQ(q4_1[31], 1.0F);
  const std::vector<float> q5_0 = decode(DType::kQ5_0, Bytes().put(kOne).put<std::uint32_t>(0x80000001).append(codes));
  EXPECT_EQ(q5_0[0], 0.0F);
  EXPECT_EQ(q5_0[1], -15.0F);
  EXPECT_EQ(q5_0[31], 0.0F);
  const std::vector<float> q5_1 =
      decode(DType::kQ5_1, Bytes().put(kOne).put(kHalf).put<std::uint32_t>(2).append(codes));
  EXPECT_EQ(q5_1[1], 17.5F);
  EXPECT_EQ(q5_1[2], 2.5F);
  const std::vector<float> q8_0 = decode(DType::kQ8_0, Bytes().put(kHalf).put<std::int8_t>(-128).resize(34));
  EXPECT_EQ(q8_0[0], -64.0F);
  EXPECT_EQ(q8_0[1], 0.0F);
}

TEST(Dequantize, ScalesOfQ4KAreUnpackedInOrder) {
  // Scales 1, 2, ... 8 with bits above the fourth in groups 4-7: 32 + 16 + low nibble.
  Bytes block = Bytes().put(kOne).put<std::uint16_t>(0);
  for (int i = 0; i < 4; ++i) block.put<std::uint8_t>(static_cast<std::uint8_t>(0xC0 | (i + 1)));
  for (int i = 0; i < 4; ++i) block.put<std::uint8_t>(0);
  for (int i = 0; i < 4; ++i) block.put<std::uint8_t>(static_cast<std::uint8_t>(i + 5));
  for (int i = 0; i < 128; ++i) block.put<std::uint8_t>(0x11);
  const std::vector<float> out = decode(DType::kQ4_K, block);
  for (int group = 0; group < 4; ++group) EXPECT_EQ(out[group * 32], static_cast<float>(group + 1));
  for (int group = 4; group < 8; ++group) EXPECT_EQ(out[group * 32], static_cast<float>(48 + group + 1));
}

TEST(Dequantize, KnowsItsTypes) {
  int n = 0;
  for (std::uint32_t id = 0; id < 2000; ++id) {
    const DTypeInfo* info = find_dtype(id);
    if (info != nullptr && can_dequantize(info->dtype)) ++n;
  }
  EXPECT_EQ(n, 13);
  EXPECT_FALSE(can_dequantize(DType::kGgmlNVFP4));
}

TEST(Dequantize, RowsOfATensor) {
  const Bytes data = testing::bytes_of_floats({1, 2, 3, 4, 5, 6});
  const TensorView tensor{.name = "t", .dtype = DType::kF32, .shape = {3, 2}, .bytes = data.span()};
  std::vector<float> row(3);
  dequantize_row(tensor, 1, row);
  EXPECT_EQ(row, (std::vector<float>{4, 5, 6}));
}

}  // namespace
}  // namespace nibble
