// Fixtures F1 to F7 of the public description of the first NVFP4 lane: its arithmetic is contract nc1-f16.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "format/e4m3.h"
#include "format/half.h"
#include "oracle/linear.h"
#include "oracle/rope.h"

namespace nibble::oracle {
namespace {

using Bytes = std::vector<std::uint8_t>;

const Bytes kCodes = {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE};

template <typename T>
std::string digest(const std::vector<T>& values) {
  return sha256_hex(std::as_bytes(std::span(values)));
}

Bytes repeated(const Bytes& pattern, std::size_t n) {
  Bytes out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = pattern[i % pattern.size()];
  return out;
}

Bytes finite_scales() {
  Bytes out;
  for (int byte = 0; byte < 256; ++byte) {
    if (!format::e4m3_is_nan(byte)) out.push_back(static_cast<std::uint8_t>(byte));
  }
  return out;
}

// (n - offset) * step + 1e-5, rounded at each operator.
float ramp(int n, int offset, float step) {
  return static_cast<float>(n - offset) * step + 1e-5F;
}

std::uint16_t half_bits(float x) {
  return format::f32_to_f16(x);
}

TEST(LaneFixtures, F1GroupOfW4A4) {
  std::vector<float> x(16);
  for (int i = 0; i < 16; ++i) x[i] = (static_cast<float>(i) - 7.5F) * 0.125F + 1e-5F;
  const W4A4 a = quantize_w4a4(x, 43.75F);
  EXPECT_EQ(a.scales[0], 0x4E);
  EXPECT_EQ(a.codes, Bytes({15, 15, 14, 14, 13, 12, 10, 9, 1, 2, 4, 5, 6, 6, 7, 7}));
  const Bytes scale = {0x38};
  EXPECT_EQ(half_bits(dot_nvfp4_w4a4({kCodes, scale, 0.25F}, a, 43.75F)), 0xC4C3);
}

TEST(LaneFixtures, F2OneRowOfA16Q8) {
  std::vector<float> x(256);
  for (int i = 0; i < 256; ++i) x[i] = format::f16_to_f32(half_bits(static_cast<float>(i - 128) * 0.003F));
  x[0] = 2;
  x[1] = -2;
  const Bytes codes(128, 0x62);
  Bytes scales(16, 0x38);
  scales[3] = 0x30;
  scales[11] = 0xB8;
  const A16Q8 a = quantize_a16q8(x);
  EXPECT_EQ(format::float_bits(a.d[0]), 0xBC810204U);
  int sum = 0;
  for (const int q : a.q) sum += q;
  EXPECT_EQ(sum, -24);
  EXPECT_EQ(std::vector<int>({a.q[0], a.q[1], a.q[2], a.q[128], a.q[129], a.q[255]}),
            std::vector<int>({-127, 127, 24, 0, 0, -24}));
  const std::vector<std::int16_t> q(a.q.begin(), a.q.end());
  EXPECT_EQ(nvfp4_block_sum({codes, scales, 0.25F}, 0, q), 878080);
  EXPECT_EQ(half_bits(dot_nvfp4_a16q8({codes, scales, 0.25F}, a)), 0xC2C1);
}

TEST(LaneFixtures, F3MatrixOfA16Q8) {
  const Bytes codes = repeated(kCodes, 128);
  const Bytes finite = finite_scales();
  std::vector<std::int8_t> all_q;
  std::vector<float> all_d;
  std::vector<std::uint16_t> out;  // [7, 11]
  for (int col = 0; col < 7; ++col) {
    std::vector<float> x(256);
    for (int e = 0; e < 256; ++e) x[e] = ramp(col * 19 + e * 7 + 3, 901, 0.003125F);
    x[0] = 2;
    x[1] = -2;
    const A16Q8 a = quantize_a16q8(x);
    EXPECT_EQ(a.q[255], -127);
    all_q.insert(all_q.end(), a.q.begin(), a.q.end());
    all_d.push_back(a.d[0]);
    for (int row = 0; row < 11; ++row) {
      Bytes scales(16);
      for (int g = 0; g < 16; ++g) scales[g] = finite[(row * 29 + g * 17) % 254];
      out.push_back(half_bits(dot_nvfp4_a16q8({codes, scales, 0.25F}, a)));
    }
  }
  EXPECT_EQ(digest(all_q), "335c1920005bdf68a2548b317aa89c4fb71f8430abe027ba352b3d1ddf863c82");
  EXPECT_EQ(digest(all_d), "cde8c4cebb360dc6b0ac394f8915c8bf6c6a0c1cf45ca35d57ae4fd01b148abc");
  EXPECT_EQ(digest(out), "eddfc4a90427cf67da4ffa6ea804ecd32e39eeea5eb30ed463a24d89064dac8b");
  const std::vector<std::uint16_t> first(out.begin(), out.begin() + 11);
  EXPECT_EQ(first, std::vector<std::uint16_t>(
                       {0xd7af, 0x5a1b, 0xdb34, 0xd91b, 0x5505, 0x581b, 0xda9e, 0xd7c5, 0x5af3, 0xdb29, 0xd891}));
  const std::vector<std::uint16_t> last(out.end() - 11, out.end());
  EXPECT_EQ(last, std::vector<std::uint16_t>(
                      {0xd7d4, 0x5a79, 0xdb0d, 0xd906, 0x5566, 0x57ef, 0xdac9, 0xd7b0, 0x5aca, 0xdb4b, 0xd873}));
}

TEST(LaneFixtures, F4EveryScaleOfW4A4) {
  const Bytes finite = finite_scales();
  Bytes activation_scales;
  Bytes activation_codes;
  std::vector<std::uint16_t> out;  // [7, 254]
  for (int col = 0; col < 7; ++col) {
    std::vector<float> x(16);
    for (int e = 0; e < 16; ++e) x[e] = ramp(col * 23 + e * 11 + 5, 67, 0.03125F);
    const W4A4 a = quantize_w4a4(x, 43.75F);
    activation_scales.push_back(a.scales[0]);
    activation_codes.insert(activation_codes.end(), a.codes.begin(), a.codes.end());
    for (const std::uint8_t scale : finite) {
      const Bytes scales = {scale};
      out.push_back(half_bits(dot_nvfp4_w4a4({kCodes, scales, 0.25F}, a, 43.75F)));
    }
  }
  activation_codes.resize(16);
  EXPECT_EQ(activation_codes, Bytes({14, 13, 12, 11, 10, 9, 0, 2, 3, 4, 5, 5, 6, 6, 7, 7}));
  EXPECT_EQ(out[0x38], 0xca4b);
  EXPECT_EQ(activation_scales, Bytes({0x5c, 0x5e, 0x60, 0x62, 0x63, 0x64, 0x66}));
  EXPECT_EQ(digest(out), "738b9e7278856fa54ddd87076e4709ebf1baa3a87d8dfa1ac038e7912071798c");
}

TEST(LaneFixtures, F5MatrixOfW4A4) {
  Bytes activation_scales;
  Bytes activation_codes;
  std::vector<std::uint16_t> out;  // [16, 37]
  for (int col = 0; col < 16; ++col) {
    std::vector<float> x(256);
    for (int e = 0; e < 256; ++e) x[e] = static_cast<float>(col * 23 + e * 11 + 5 - 1407) / 512.0F + 1e-5F;
    const W4A4 a = quantize_w4a4(x, 43.75F);
    activation_scales.insert(activation_scales.end(), a.scales.begin(), a.scales.end());
    activation_codes.insert(activation_codes.end(), a.codes.begin(), a.codes.end());
    for (int row = 0; row < 37; ++row) {
      Bytes codes(128);
      Bytes scales(16);
      for (int i = 0; i < 128; ++i) codes[i] = static_cast<std::uint8_t>(row * 29 + i * 17 + 3);
      for (int g = 0; g < 16; ++g) scales[g] = static_cast<std::uint8_t>((row * 13 + g * 7 + 1) % 127);
      out.push_back(half_bits(dot_nvfp4_w4a4({codes, scales, 0.25F}, a, 43.75F)));
    }
  }
  EXPECT_EQ(digest(activation_scales), "9bba614191cdf027ac3d4ff44ca028eb7bfb425e4a6f5b52c4615ba82bc1de86");
  EXPECT_EQ(digest(activation_codes), "3eddc45e1bd570e96c5e2583e3206fc305ba304e7da1deda1d0e6c63251cb1a2");
  EXPECT_EQ(digest(out), "f402274ed61664a5b914e3b5688247d35303c4c701b1d1a5ff163234b3a77404");
  const std::vector<std::uint16_t> first(out.begin(), out.begin() + 8);
  EXPECT_EQ(first, std::vector<std::uint16_t>({0xd898, 0xd2d0, 0xea80, 0xeaad, 0xe3aa, 0x599f, 0xdd23, 0x52cc}));
}

// F6, the dequantization, stands in tests/format/nvfp4_test.cc.

TEST(LaneFixtures, F7NonFiniteActivations) {
  const Bytes codes(128, 0x22);
  const Bytes scales(16, 0x38);
  const auto dot_with = [&](float x0) {
    std::vector<float> x(256, 1.0F);
    x[0] = x0;
    return dot_nvfp4_a16q8({codes, scales, 1.0F}, quantize_a16q8(x));
  };
  EXPECT_EQ(dot_with(1), 256);
  EXPECT_EQ(dot_with(std::numeric_limits<float>::quiet_NaN()), 255);
  EXPECT_TRUE(std::isnan(dot_with(std::numeric_limits<float>::infinity())));
  EXPECT_TRUE(std::isnan(dot_with(70000)));
}

// Section 4.4 of the same description.
TEST(LaneFixtures, TiesAndSignsOfA16Q8) {
  std::vector<float> x(256);
  const float values[6] = {127, .5F, 1.5F, 2.5F, -.5F, -1.5F};
  std::copy(values, values + 6, x.begin());
  A16Q8 a = quantize_a16q8(x);
  EXPECT_EQ(a.d[0], -1);
  EXPECT_EQ(std::vector<int>(a.q.begin(), a.q.begin() + 6), std::vector<int>({-127, 0, -2, -2, 0, 2}));
  x[0] = -127;
  a = quantize_a16q8(x);
  EXPECT_EQ(a.d[0], 1);
  EXPECT_EQ(std::vector<int>(a.q.begin(), a.q.begin() + 6), std::vector<int>({-127, 0, 2, 2, 0, -2}));
  EXPECT_NEAR(quantize_a16q8(std::vector<float>(256, 6e-8F)).d[0], -4.693e-10F, 1e-13F);
  EXPECT_EQ(quantize_a16q8(std::vector<float>(256, 1e-8F)).d[0], 0);
}

TEST(LaneFixtures, W4A4EdgeGroups) {
  std::vector<float> x(16, 1e-6F);
  x[1] = -1e-6F;
  W4A4 a = quantize_w4a4(x, 43.75F);
  EXPECT_EQ(a.scales[0], 0);
  EXPECT_EQ(a.codes[0], 0);
  EXPECT_EQ(a.codes[1], 8);
  std::vector<float> ones(16, 1.0F);
  ones[3] = std::numeric_limits<float>::quiet_NaN();
  a = quantize_w4a4(ones, 43.75F);
  EXPECT_EQ(a.scales[0], 0x4F);
  EXPECT_EQ(a.codes[3], 7);
  ones[3] = std::numeric_limits<float>::infinity();
  a = quantize_w4a4(ones, 43.75F);
  EXPECT_EQ(a.scales[0], 0x7E);
  EXPECT_EQ(a.codes[3], 7);
  EXPECT_EQ(a.codes[0], 0);
}

// FNV-1a-64 over the little-endian bytes of the (cos, sin) pairs of the first four positions.
TEST(LaneFixtures, RopeOscillator) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (int position = 0; position < 4; ++position) {
    const auto table = oscillator_cos_sin(position);
    for (const std::byte byte : std::as_bytes(std::span(table))) {
      hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001B3ULL;
    }
  }
  EXPECT_EQ(hash, 0xEC36949CC4F7B428ULL);
}

}  // namespace
}  // namespace nibble::oracle
