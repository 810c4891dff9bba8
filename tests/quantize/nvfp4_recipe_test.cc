#include "quantize/nvfp4_recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "format/nvfp4.h"

namespace nibble {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

struct Row {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
};

Row quantize(const std::vector<float>& weights, float tensor_scale) {
  Row row{std::vector<std::uint8_t>(weights.size() / 2), std::vector<std::uint8_t>(weights.size() / 16)};
  quantize_row(Recipe::kMax, weights, tensor_scale, row.codes, row.scales);
  return row;
}

// The golden matrix [2, 32] of ModelOpt's rules: its first group is all ties, its last all tiny.
std::vector<float> golden_row(int row) {
  std::vector<float> weights(32);
  if (row == 0) {
    const float steps[] = {6, 5, 3.5, 2.5, 1.75, 1.25, 0.75, 0.25};
    for (int i = 0; i < 8; ++i) {
      weights[i] = 0.4375F * steps[i];
      weights[i + 8] = -0.4375F * steps[i];
    }
  } else {
    const float values[] = {1, 0.5, 0.25, 0.125, 0.30078125, 0.75, 0.0625, 0.015625};
    for (int i = 0; i < 8; ++i) {
      weights[2 * i] = values[i];
      weights[2 * i + 1] = -values[i];
    }
    weights[16] = 0x1p-18F;
    weights[17] = -0x1p-18F;
    weights[18] = 0x1p-19F;
    weights[19] = -0x1p-19F;
  }
  return weights;
}

TEST(Nvfp4Max, GoldenVectors) {
  const float scale = tensor_scale_of(Recipe::kMax, 2.625F);
  EXPECT_EQ(scale, 0x1p-10F);
  const Row first = quantize(golden_row(0), scale);
  EXPECT_THAT(first.scales, ElementsAre(0x7E, 0x38));
  EXPECT_THAT(first.codes, ElementsAreArray({0x67, 0x46, 0x24, 0x02, 0xEF, 0xCE, 0xAC, 0x8A, 0, 0, 0, 0, 0, 0, 0, 0}));
  const Row second = quantize(golden_row(1), scale);
  EXPECT_THAT(second.scales, ElementsAre(0x73, 0x01));
  EXPECT_THAT(second.codes,
              ElementsAreArray({0xF7, 0xD5, 0xB3, 0x91, 0xC4, 0xE6, 0x91, 0x80, 0xC4, 0xA2, 0, 0, 0, 0, 0, 0}));
}

TEST(Nvfp4Max, AllZeroTensorHasScaleOne) {
  EXPECT_EQ(tensor_scale_of(Recipe::kMax, 0), 1.0F);
  const Row row = quantize(std::vector<float>(16, 0.0F), 1.0F);
  EXPECT_THAT(row.scales, ElementsAre(0x38));
  EXPECT_THAT(row.codes, Each(0));
}

TEST(Nvfp4Max, MinusZeroIsCodeZeroAndATinyNegativeKeepsItsSign) {
  std::vector<float> weights(16, -0.0F);
  weights[0] = 6;
  weights[1] = -1e-20F;
  const Row row = quantize(weights, tensor_scale_of(Recipe::kMax, 6));
  EXPECT_EQ(row.codes[0], 0x87);
  EXPECT_THAT(std::vector<std::uint8_t>(row.codes.begin() + 1, row.codes.end()), Each(0));
}

TEST(Nvfp4Max, BlockScalesAreClamped) {
  EXPECT_EQ(max_block_scale(0, 1.0F), 0x38);
  EXPECT_EQ(max_block_scale(1e-30F, 1.0F), 0x01);  // 2^-9, never 0
  EXPECT_EQ(max_block_scale(1e30F, 1.0F), 0x7E);   // 448, never NaN
  EXPECT_EQ(max_block_scale(2688, 1.0F), 0x7E);
  EXPECT_EQ(max_block_scale(6, 1.0F), 0x38);
}

TEST(Nvfp4Max, CodesAreDividedByTheRoundedScale) {
  // amax/(6 g) = 170.67 rounds to 176: codes chosen for 170.67 would keep 1.0 at 6, for 176 it is 5.82, still 6; but
  // 0.86 falls from 5.16 (a 6) to 5.004 (a 6) and 0.858 from 5.148 (a 6) to 4.992 (a 4).
  std::vector<float> weights(16, 0.0F);
  weights[0] = 1.0F;
  weights[1] = 0.86F;
  weights[2] = 0.858F;
  const Row row = quantize(weights, 0x1p-10F);
  EXPECT_EQ(row.scales[0], 0x73);
  EXPECT_EQ(row.codes[0], 0x77);
  EXPECT_EQ(row.codes[1], 0x06);
}

TEST(Nvfp4Max, DividesInsteadOfMultiplyingByTheReciprocal) {
  // Scale 448, divisor 0.9375 exactly: 1.25, 2.5 and 5 are ties that go down, and 1/0.9375 is rounded up.
  std::vector<float> weights(16, 0.0F);
  weights[0] = 5.625F;
  weights[1] = 1.25F * 0.9375F;
  weights[2] = 2.5F * 0.9375F;
  weights[3] = 5.0F * 0.9375F;
  const Row row = quantize(weights, tensor_scale_of(Recipe::kMax, 5.625F));
  EXPECT_EQ(row.scales[0], 0x7E);
  EXPECT_EQ(row.codes[0], 0x27);
  EXPECT_EQ(row.codes[1], 0x64);
}

// Squared error of a group of 16 as the recipe stores it.
double error_of(Recipe recipe, const std::vector<float>& weights, float tensor_scale) {
  std::vector<std::uint8_t> codes(8), scales(1);
  quantize_row(recipe, weights, tensor_scale, codes, scales);
  double error = 0;
  for (int i = 0; i < 16; ++i) {
    const double d =
        weights[i] - format::nvfp4_dequantize(format::nvfp4_code(codes[i / 2], i), scales[0], tensor_scale);
    error += d * d;
  }
  return error;
}

TEST(Nvfp4FourOverSix, TakesTheLargestWeightAsAFourWhereThatIsExact) {
  std::vector<float> weights(16, 0.0F);
  weights[0] = 4;
  weights[1] = 3;
  weights[2] = -2;
  weights[3] = 1.5F;
  const float scale = tensor_scale_of(Recipe::kFourOverSix, 4);
  EXPECT_EQ(scale, 4.0F / 1536);
  std::vector<std::uint8_t> codes(8), scales(1);
  quantize_row(Recipe::kFourOverSix, weights, scale, codes, scales);
  EXPECT_EQ(scales[0], 0x7C);  // 384 = 256 * 3 / 2
  EXPECT_EQ(codes[0], 0x56);   // 4, 3
  EXPECT_EQ(codes[1], 0x3C);   // -2, 1.5
  EXPECT_EQ(error_of(Recipe::kFourOverSix, weights, scale), 0);
  weights[0] = 6;  // exact as a six, and 3 is too
  quantize_row(Recipe::kFourOverSix, weights, tensor_scale_of(Recipe::kFourOverSix, 6), codes, scales);
  EXPECT_EQ(scales[0], 0x78);  // 256
  EXPECT_EQ(codes[0], 0x57);
}

TEST(Nvfp4Mse, IsNeverWorseThanMaxWithTheSameTensorScale) {
  std::uint32_t state = 7;
  const auto uniform = [&] {
    state = state * 1664525U + 1013904223U;
    return static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
  };
  int better = 0;
  for (int group = 0; group < 2000; ++group) {
    std::vector<float> weights(16);
    for (float& w : weights) w = uniform() * uniform() * (group % 5 == 0 ? 1e-4F : 1.0F);
    const float scale = tensor_scale_of(Recipe::kMse, 1.0F);
    const double max = error_of(Recipe::kMax, weights, scale), mse = error_of(Recipe::kMse, weights, scale);
    EXPECT_LE(mse, max);
    better += mse < max ? 1 : 0;
  }
  EXPECT_GT(better, 1000);
}

TEST(Nvfp4Recipe, ZerosAndTheSmallestGroupsStayInTheRangeOfE4m3) {
  for (const Recipe recipe : {Recipe::kMax, Recipe::kFourOverSix, Recipe::kMse}) {
    for (const float amax : {0.0F, 1e-30F, 1e-6F, 1.0F}) {
      std::vector<float> weights(16, amax);
      std::vector<std::uint8_t> codes(8), scales(1);
      quantize_row(recipe, weights, tensor_scale_of(recipe, 1.0F), codes, scales);
      EXPECT_GE(scales[0], 0x01);
      EXPECT_LE(scales[0], 0x7E);
    }
    EXPECT_EQ(find_recipe(recipe_name(recipe)), recipe);
  }
  EXPECT_EQ(find_recipe("best"), std::nullopt);
}

}  // namespace
}  // namespace nibble
