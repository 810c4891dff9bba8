// Block-quantized weights as integers, and what the oracle makes of them, against the independent decoder of
// io/dequantize.h, which has the bits of the gguf package.
#include "tensor/quant_block.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "format/half.h"
#include "io/dequantize.h"
#include "oracle/quant_linear.h"
#include "tests/oracle/golden_inputs.h"

namespace nibble {
namespace {

namespace golden = oracle::golden;

constexpr std::size_t kWidths[] = {32, 96, 256, 288, 1536, 4864};

// Calls f(format, n) for every type and width that fits it.
template <typename F>
void for_types(F f) {
  for (const DType dtype : golden::kQuantTypes) {
    for (const std::size_t n : kWidths) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + ", " + std::to_string(n));
      if (n % dtype_info(dtype).block_size == 0) f(*find_quant_format(dtype), n);
    }
  }
}

std::vector<float> dequantized(DType dtype, std::span<const std::byte> row, std::size_t n) {
  std::vector<float> out(n);
  dequantize(dtype, row, out);
  return out;
}

TEST(QuantBlock, RowsHaveTheBitsOfTheDequantizer) {
  for_types([](const QuantFormat& format, std::size_t n) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      const std::vector<std::byte> row = golden::quant_row(seed, format.dtype, n);
      std::vector<float> found(n);
      quant_row_to_f32(format, row, found.data());
      EXPECT_EQ(std::memcmp(found.data(), dequantized(format.dtype, row, n).data(), n * sizeof(float)), 0);
    }
  });
}

TEST(QuantBlock, IntegersStayWithinTheirFormat) {
  for_types([](const QuantFormat& format, std::size_t n) {
    const std::vector<std::byte> row = golden::quant_row(9, format.dtype, n);
    for (std::size_t b = 0; b * 64 < n; ++b) {
      const QuantBlock w = unpack_block(format, row, b);
      EXPECT_EQ(w.n, std::min<int>(64, static_cast<int>(n - 64 * b)));
      for (const int code : w.code) EXPECT_LT(code, 1 << format.code_bits);
      for (int g = 0; g < w.n / format.group; ++g) {
        EXPECT_LE(std::abs(w.scale[g]), format.largest_scale);
        EXPECT_LE(w.minimum[g], format.has_minimum ? 63 : 0);
      }
    }
  });
}

// What an output may differ from the exact product of the weights and q * d: each of its terms T (a sum times its
// scale) is rounded in the sum, the scale and the fma, whose rounding is that of all terms so far; and the dequantized
// weights have one rounding of their own.
TEST(DotQuant, IsTheProductWithTheDequantizedWeightsWithinItsRoundings) {
  constexpr double kRounding = 0x1p-24;
  for_types([](const QuantFormat& format, std::size_t n) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const std::vector<std::byte> row = golden::quant_row(seed, format.dtype, n);
      const std::vector<float> w = dequantized(format.dtype, row, n);
      const oracle::A11 x = oracle::quantize_a11(golden::activations(seed + 100, n));
      double exact = 0, bound = 0, terms = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const double product = double{w[i]} * x.q[i] * double{x.d[i / 64]};
        exact += product;
        bound += std::abs(product) * kRounding;
      }
      const int width = format.is_super ? 64 : 32;
      for (std::size_t first = 0; first < n; first += width) {
        const QuantBlock block = unpack_block(format, row, first / 64);
        const int begin = static_cast<int>(first % 64);
        const auto sums = oracle::quant_block_sums(format, block, std::span(x.q).subspan(first - begin, block.n), begin,
                                                   begin + width);
        for (const double term : {sums.weights * double{format::f16_to_f32(block.d[begin / 32])},
                                  sums.minimums * double{format::f16_to_f32(block.m[begin / 32])}}) {
          terms += std::abs(term * x.d[first / 64]);
          bound += kRounding * (2 * std::abs(term * x.d[first / 64]) + terms);
        }
      }
      EXPECT_NEAR(oracle::dot_quant_a11(format, row, x), exact, 1.001 * bound);
    }
  });
}

TEST(DotQuant, Q8_0IsThatOfNc1) {
  for (const std::size_t n : {32, 96, 1120}) {
    const std::vector<std::byte> row = golden::q8_0_row(3, n);
    const oracle::A11 x = oracle::quantize_a11(golden::activations(4, n));
    EXPECT_EQ(oracle::dot_quant_a11(*find_quant_format(DType::kQ8_0), row, x), oracle::dot_q8_0_a11(row, x));
  }
}

// The bounds that docs/contract.md gives, met by the largest codes and scales and activations of one sign.
TEST(DotQuant, SumsReachTheBoundsOfTheContractAndNoMore) {
  const std::pair<DType, std::int64_t> bounds[] = {
      {DType::kQ4_0, 261888},    {DType::kQ4_1, 491040},   {DType::kQ5_0, 523776},  {DType::kQ5_1, 1014816},
      {DType::kQ8_0, 4190208},   {DType::kQ2_K, 2946240},  {DType::kQ3_K, 8380416}, {DType::kQ4_K, 61871040},
      {DType::kQ5_K, 127866816}, {DType::kQ6_K, 268173312}};
  for (const auto& [dtype, bound] : bounds) {
    const QuantFormat& format = *find_quant_format(dtype);
    const int largest_code = std::max(format.offset, (1 << format.code_bits) - 1 - format.offset);
    const int width = format.is_super ? 64 : 32;
    QuantBlock w{};
    std::ranges::fill(w.scale, static_cast<std::int16_t>(format.largest_scale));
    std::ranges::fill(w.code, static_cast<std::uint8_t>(largest_code == format.offset ? 0 : largest_code));
    const std::vector<std::int16_t> q(64, oracle::kA11Max);
    EXPECT_EQ(std::abs(oracle::quant_block_sums(format, w, q, 0, width).weights), bound) << dtype_name(dtype);
    EXPECT_LT(bound, std::int64_t{1} << 31);
    EXPECT_LE(largest_code * format.largest_scale, 32767);  // a weight times its scale is an int16
  }
}

}  // namespace
}  // namespace nibble
