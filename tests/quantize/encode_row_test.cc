#include "quantize/encode_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "io/dequantize.h"

namespace nibble {
namespace {

std::optional<std::size_t> encode(DType dtype, const std::vector<float>& row, std::vector<float>* back = nullptr) {
  std::vector<std::byte> bytes(bytes_of(dtype, row.size()));
  const std::optional<std::size_t> misfit = encode_row(dtype, row, bytes);
  if (back != nullptr) {
    back->resize(row.size());
    dequantize(dtype, bytes, *back);
  }
  return misfit;
}

TEST(EncodeRow, RoundsToSixteenBits) {
  std::vector<float> back;
  EXPECT_EQ(encode(DType::kF16, {1.0F, 65504.0F, 65519.0F, -0.0F, 1e-9F}, &back), std::nullopt);
  EXPECT_EQ(back, (std::vector<float>{1.0F, 65504.0F, 65504.0F, 0.0F, 0.0F}));
  EXPECT_TRUE(std::signbit(back[3]));
  EXPECT_EQ(encode(DType::kBF16, {1.00390625F, 3e38F}, &back), std::nullopt);
  EXPECT_EQ(back[0], 1.0F);
}

TEST(EncodeRow, NamesTheFirstWeightThatDoesNotFit) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(encode(DType::kF16, {0, 1, 65520.0F, inf}), 2U);
  EXPECT_EQ(encode(DType::kF16, {0, -65536.0F}), 1U);
  EXPECT_EQ(encode(DType::kBF16, {0, 3.4e38F}), 1U);  // rounds to infinity
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_EQ(encode(dtype, {0, 0, 0, nan}), 3U);
    EXPECT_EQ(encode(dtype, {-inf, 0, 0, nan}), 0U);
  }
  std::vector<float> block(64, 1.0F);
  block[40] = inf;
  EXPECT_EQ(encode(DType::kQ8_0, block), 40U);
  block[40] = -1e7F;  // d = 78740 is no f16
  EXPECT_EQ(encode(DType::kQ8_0, block), 40U);
}

TEST(EncodeRow, Q8RoundsHalvesAwayFromZero) {
  std::vector<float> block(32, 0.0F);
  block[0] = 127;
  block[1] = 0.5F;
  block[2] = -2.5F;
  block[3] = 1.49F;
  std::vector<float> back;
  EXPECT_EQ(encode(DType::kQ8_0, block, &back), std::nullopt);
  EXPECT_EQ(back[0], 127);
  EXPECT_EQ(back[1], 1);
  EXPECT_EQ(back[2], -3);
  EXPECT_EQ(back[3], 1);
  EXPECT_EQ(encode(DType::kQ8_0, std::vector<float>(32, 0.0F), &back), std::nullopt);
  EXPECT_EQ(back, std::vector<float>(32, 0.0F));
}

}  // namespace
}  // namespace nibble
