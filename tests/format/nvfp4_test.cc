#include "format/nvfp4.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/sha256.h"
#include "format/half.h"

namespace nibble::format {
namespace {

static_assert(e2m1_x2(7) == 12 && e2m1_x2(15) == -12 && e2m1_x2(1) == 1);
static_assert(e4m3_x512(0x7E) == 229376 && e4m3_x512(0x01) == 1 && e4m3_x512(0x88) == -8);
static_assert(e2m1_decode(7) == 6.0f && e4m3_decode(0x38) == 1.0f && e4m3_decode(0x7E) == kE4m3Max);
static_assert(e2m1_encode(2.5f) == 4 && e4m3_encode(1000.0f) == 0x7E);
static_assert(nvfp4_code(0x62, 0) == 2 && nvfp4_code(0x62, 1) == 6);

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float above(float x) {
  return std::nextafter(x, kInfinity);
}
float below(float x) {
  return std::nextafter(x, -kInfinity);
}

TEST(E2m1, DecodesTheTable) {
  const float values[8] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
  for (std::uint32_t code = 0; code < 16; ++code) {
    const float expected = std::copysign(values[code & 7], code < 8 ? 1.0f : -1.0f);
    EXPECT_EQ(float_bits(e2m1_decode(code)), float_bits(expected)) << code;
    EXPECT_EQ(e2m1_x2(code), static_cast<int>(expected * 2)) << code;
    EXPECT_EQ(e2m1_encode(expected), code);
  }
}

TEST(E2m1, TiesGoToTheEvenCode) {
  const struct {
    float x;
    std::uint32_t at, after;
  } ties[] = {{.25f, 0, 1}, {.75f, 2, 2}, {1.25f, 2, 3}, {1.75f, 4, 4}, {2.5f, 4, 5}, {3.5f, 6, 6}, {5.0f, 6, 7}};
  std::uint32_t before = 0;
  for (const auto& tie : ties) {
    for (std::uint32_t sign : {0u, 8u}) {
      const float s = sign != 0 ? -1.0f : 1.0f;
      EXPECT_EQ(e2m1_encode(s * below(tie.x)), before | sign) << tie.x;
      EXPECT_EQ(e2m1_encode(s * tie.x), tie.at | sign) << tie.x;
      EXPECT_EQ(e2m1_encode(s * above(tie.x)), tie.after | sign) << tie.x;
    }
    ++before;
  }
  EXPECT_EQ(e2m1_encode(kInfinity), 7);
  EXPECT_EQ(e2m1_encode(-kInfinity), 15);
  EXPECT_EQ(e2m1_encode(kNan), 7);
  EXPECT_EQ(e2m1_encode(-0.0f), 8);
}

TEST(E4m3, DecodesEveryByteByTheFormula) {
  for (int byte = 0; byte < 256; ++byte) {
    const int exponent = (byte >> 3) & 15;
    const int mantissa = byte & 7;
    const bool nan = exponent == 15 && mantissa == 7;
    EXPECT_EQ(e4m3_is_nan(byte), nan);
    if (nan) {
      EXPECT_TRUE(std::isnan(e4m3_decode(byte)));
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa / 8.0, -6) : std::ldexp(1 + mantissa / 8.0, exponent - 7);
    const double expected = byte < 128 ? magnitude : -magnitude;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(double{e4m3_decode(byte)}), std::bit_cast<std::uint64_t>(expected)) << byte;
    EXPECT_EQ(e4m3_x512(byte), expected * 512) << byte;
    EXPECT_EQ(e4m3_encode(static_cast<float>(expected)), byte);
  }
}

TEST(E4m3, RoundsToNearestEvenAtEveryMidpointAndItsNeighbours) {
  for (int code = 0; code < 0x7E; ++code) {
    const float middle = (e4m3_decode(code) + e4m3_decode(code + 1)) * 0.5f;
    const int even = (code & 1) == 0 ? code : code + 1;
    EXPECT_EQ(e4m3_encode(middle), even) << code;
    EXPECT_EQ(e4m3_encode(below(middle)), code);
    EXPECT_EQ(e4m3_encode(above(middle)), code + 1);
    EXPECT_EQ(e4m3_encode(-middle), even | 0x80);
    EXPECT_EQ(e4m3_encode(-above(middle)), (code + 1) | 0x80);
  }
}

TEST(E4m3, SaturatesAndKeepsSigns) {
  EXPECT_EQ(e4m3_encode(448.0f), 0x7E);
  EXPECT_EQ(e4m3_encode(above(448.0f)), 0x7E);
  EXPECT_EQ(e4m3_encode(below(448.0f)), 0x7E);
  EXPECT_EQ(e4m3_encode(1000.0f), 0x7E);
  EXPECT_EQ(e4m3_encode(-1000.0f), 0xFE);
  EXPECT_EQ(e4m3_encode(kInfinity), 0x7E);
  EXPECT_EQ(e4m3_encode(-kInfinity), 0xFE);
  EXPECT_EQ(e4m3_encode(kNan), 0x7F);
  EXPECT_EQ(e4m3_encode(-kNan), 0x7F);
  EXPECT_EQ(e4m3_encode(-0.0f), 0x80);
  EXPECT_EQ(e4m3_encode(0x1p-149f), 0x00);
  EXPECT_EQ(e4m3_encode(0x1p-10f), 0x00);  // the tie between 0 and the least
  EXPECT_EQ(e4m3_encode(above(0x1p-10f)), 0x01);
}

// Every code under every scale, against the exact product in double rounded once.
TEST(Nvfp4, DequantizesExhaustivelyWithOneRounding) {
  const float tensor_scales[] = {1.0f, 0.25f, 1.0f / 448.0f, 0x1.fffffep-20f, 1.2345678e-3f, 3.7e9f};
  for (const float tensor_scale : tensor_scales) {
    for (std::uint32_t scale = 0; scale < 256; ++scale) {
      if (e4m3_is_nan(scale)) continue;
      for (std::uint32_t code = 0; code < 16; ++code) {
        const double value = e2m1_x2(code) * 0.5 * (e4m3_x512(scale) / 512.0);
        const float expected = static_cast<float>(value * double{tensor_scale});
        const float found = nvfp4_dequantize(code, scale, tensor_scale);
        ASSERT_EQ(found, expected) << code << ' ' << scale << ' ' << tensor_scale;
        const bool negative = ((code >> 3) ^ (scale >> 7)) != 0;  // signed zeros
        ASSERT_EQ(std::signbit(found), negative);
      }
    }
  }
}

// Fixture F6 of the public description of the format's first lane.
TEST(Nvfp4, ReproducesTheDequantizationFixture) {
  const std::uint8_t codes[8] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE};
  const float tensor_scale = 1.0f / 448.0f;
  std::vector<float> values;
  for (std::uint32_t scale = 0; scale < 256; ++scale) {
    if (e4m3_is_nan(scale)) continue;
    for (int i = 0; i < kNvfp4Group; ++i) {
      values.push_back(nvfp4_dequantize(nvfp4_code(codes[i / 2], i), scale, tensor_scale));
    }
  }
  EXPECT_EQ(sha256_hex(std::as_bytes(std::span(values))),
            "f998ba322e5e91af55f26cae838a0d7656d409ebe9917ab1748eae2a7480325a");
  EXPECT_EQ(float_bits(nvfp4_dequantize(1, 0x38, tensor_scale)), 0x3A924925u);
  EXPECT_EQ(float_bits(nvfp4_dequantize(7, 0x38, tensor_scale)), 0x3C5B6DB8u);
  EXPECT_EQ(float_bits(nvfp4_dequantize(1, 0x01, tensor_scale)), 0x36124925u);
  EXPECT_EQ(float_bits(nvfp4_dequantize(7, 0x7E, tensor_scale)), 0x40C00001u);
}

}  // namespace
}  // namespace nibble::format
