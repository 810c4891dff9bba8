// Contract, rule 5: flushing of f32 subnormals changes no result. Linear layers and attention near their smallest
// values, with the processor's flush modes off and on. (Arm flushes by FPCR; the instructions of this test are x86's.)
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "oracle/attention.h"
#include "oracle/linear.h"
#include "tests/oracle/golden_inputs.h"

#if defined(__x86_64__)

namespace nibble::oracle {
namespace {

class FlushSubnormals {
 public:
  FlushSubnormals() : before_(__builtin_ia32_stmxcsr()) {
    __builtin_ia32_ldmxcsr(before_ | 0x8040U);  // flush results to zero, take subnormal operands as zero
  }
  ~FlushSubnormals() { __builtin_ia32_ldmxcsr(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  unsigned before_;
};

// Calls f twice and expects equal bits. A std::function, so that the compiler moves no arithmetic over the mode's
// switch.
void expect_same_flushed(const std::function<std::vector<float>()>& f, const char* what) {
  const std::vector<float> plain = f();
  std::vector<float> flushed;
  {
    const FlushSubnormals on;
    flushed = f();
  }
  ASSERT_EQ(plain.size(), flushed.size());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    ASSERT_EQ(format::float_bits(plain[i]), format::float_bits(flushed[i])) << what << ' ' << i;
  }
}

std::vector<float> scaled(std::uint64_t seed, std::size_t n, int exponent) {
  std::vector<float> x = golden::activations(seed, n);
  for (std::size_t i = 0; i < n; ++i) x[i] = std::ldexp(x[i], exponent - static_cast<int>(i % 5) * 20);
  return x;
}

TEST(Flush, TheModeIsSeen) {  // the control: without it the other tests could pass blind
  volatile float tiny = 0x1p-100F;
  volatile float product = tiny * 0x1p-40F;
  const std::uint32_t plain = format::float_bits(product);
  {
    const FlushSubnormals on;
    product = tiny * 0x1p-40F;
  }
  EXPECT_NE(plain, 0u);
  EXPECT_EQ(format::float_bits(product), 0u);
}

TEST(Flush, LinearLayersKeepTheirBits) {
  for (int exponent = -130; exponent <= -30; exponent += 2) {
    expect_same_flushed(
        [&] {
          golden::Nvfp4Matrix w = golden::nvfp4_matrix(1, 8, 400);
          w.tensor_scale = 0x1p-42F;
          const A11 x = quantize_a11(scaled(2, 400, exponent));
          std::vector<float> out;
          for (std::size_t row = 0; row < 8; ++row) out.push_back(dot_nvfp4_a11(w.row(row), x));
          std::vector<float> halves = scaled(3, 400, -60);
          for (float& v : halves) v = format::bf16_to_f32(format::f32_to_bf16(v));
          out.push_back(dot_16bit_a11(make_integer_row(halves), x));
          out.push_back(dot_q8_0_a11(golden::q8_0_row(4, 384), quantize_a11(scaled(2, 384, exponent))));
          return out;
        },
        "linear");
  }
}

TEST(Flush, AttentionKeepsItsBits) {
  for (int exponent = -130; exponent <= 0; exponent += 5) {
    expect_same_flushed(
        [&] {
          std::vector<QuantizedHead> keys;
          std::vector<QuantizedHead> values;
          for (std::uint64_t j = 0; j < 600; ++j) {  // scores far apart, values of all sizes
            keys.push_back(quantize_head(scaled(10 + j, 64, static_cast<int>(j % 7)), kKeyMax));
            values.push_back(quantize_head(scaled(900 + j, 64, exponent - static_cast<int>(j % 11) * 9), kValueMax));
          }
          std::vector<float> out(64);
          attention(quantize_head(scaled(5, 64, 2), kQueryMax), keys, values, 0.125F, out);
          for (float& o : out) {  // what the next quantizer sees
            if (std::abs(o) < 0x1p-60F) o = 0;
          }
          return out;
        },
        "attention");
  }
}

// The least that a split can add: its largest score has a value of zero, the other lies 2^-40 below, and later splits
// stand above it with values of zero. Without the two bounds of steps 4 and 5 this makes subnormals.
TEST(Flush, TheFoldOfTinySplitsMakesNoSubnormals) {
  expect_same_flushed(
      [] {
        const QuantizedHead zero{std::vector<std::int16_t>(64), 0.0F};
        std::vector<float> out;
        for (int exponent = -47; exponent <= 0; ++exponent) {
          const QuantizedHead tiny{std::vector<std::int16_t>(64, 3), std::ldexp(1.25F, exponent)};
          AttentionState state;
          for (int m = 0; m <= 70; m += 35) {
            const std::vector<Score> scores = {{m, 1.0F}, {m - 40, 0.75F}};
            const std::vector<QuantizedHead> values = {zero, m == 0 ? tiny : zero};
            merge_split(attend_split(scores, values), state);
            out.push_back(state.o[0]);
          }
        }
        return out;
      },
      "fold");
}

}  // namespace
}  // namespace nibble::oracle

#endif
