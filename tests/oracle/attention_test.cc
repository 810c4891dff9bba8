#include "oracle/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "oracle/hadamard.h"
#include "tests/oracle/golden_inputs.h"

namespace nibble::oracle {
namespace {

struct Context {
  std::vector<std::vector<float>> k, v;
  std::vector<QuantizedHead> keys, values;
};

Context make_context(std::size_t n_keys, std::size_t head_dim) {
  Context c;
  for (std::size_t j = 0; j < n_keys; ++j) {
    c.k.push_back(golden::activations(100 + j, head_dim));
    c.v.push_back(golden::activations(7000 + j, head_dim));
    c.keys.push_back(quantize_head(c.k.back(), kKeyMax));
    c.values.push_back(quantize_head(c.v.back(), kValueMax));
  }
  return c;
}

std::vector<double> float_attention(std::span<const float> q, const Context& c, double scale) {
  std::vector<double> out(q.size());
  double sum = 0;
  for (std::size_t j = 0; j < c.k.size(); ++j) {
    double s = 0;
    for (std::size_t i = 0; i < q.size(); ++i) s += double{q[i]} * c.k[j][i];
    const double p = std::exp(s * scale);
    sum += p;
    for (std::size_t i = 0; i < q.size(); ++i) out[i] += p * c.v[j][i];
  }
  for (double& o : out) o /= sum;
  return out;
}

TEST(Hadamard, TwiceIsMultiplicationBySize) {
  for (const std::size_t n : {64, 80, 96, 128, 48}) {
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i * 7 % 23) - 11.0F;
    const std::vector<float> before = x;
    hadamard(x);
    EXPECT_NE(x, before);
    hadamard(x);
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(x[i], before[i] * static_cast<float>(hadamard_size(n)));
  }
  EXPECT_EQ(hadamard_size(64), 64);
  EXPECT_EQ(hadamard_size(80), 16);
  EXPECT_EQ(hadamard_size(96), 32);
}

TEST(Attention, IsCloseToFloatAttention) {
  for (const std::size_t head_dim : {64, 80, 128}) {
    for (const std::size_t n_keys : {1, 2, 128, 129, 500}) {
      const Context c = make_context(n_keys, head_dim);
      const std::vector<float> q = golden::activations(3, head_dim);
      const double scale = 0.2 / std::sqrt(static_cast<double>(head_dim));
      const std::vector<double> expected = float_attention(q, c, scale);
      std::vector<float> out(head_dim);
      attention(quantize_head(q, kQueryMax), c.keys, c.values, static_cast<float>(scale), out);
      double error = 0;
      double norm = 0;
      for (std::size_t i = 0; i < head_dim; ++i) {
        error += (out[i] - expected[i]) * (out[i] - expected[i]);
        norm += expected[i] * expected[i];
      }
      EXPECT_LT(std::sqrt(error / norm), 0.02) << head_dim << ' ' << n_keys;
    }
  }
}

// Splits stay where they are: a window that starts with one has the bits of its keys alone, any other is close to float
// attention over its keys.
TEST(Attention, AWindowSeesItsKeysOnly) {
  const std::size_t head_dim = 64;
  const Context c = make_context(300, head_dim);
  const std::vector<float> q = golden::activations(3, head_dim);
  for (const std::size_t first_key : {0, 1, 100, 127, 128, 129, 256, 299}) {
    std::vector<float> out(head_dim), alone(head_dim);
    attention(quantize_head(q, kQueryMax), c.keys, c.values, 0.02F, out, first_key);
    attention(quantize_head(q, kQueryMax), std::span(c.keys).subspan(first_key), std::span(c.values).subspan(first_key),
              0.02F, alone);
    if (first_key % kSplitKeys == 0) {
      EXPECT_EQ(out, alone);
    }
    Context seen;
    seen.k.assign(c.k.begin() + static_cast<std::ptrdiff_t>(first_key), c.k.end());
    seen.v.assign(c.v.begin() + static_cast<std::ptrdiff_t>(first_key), c.v.end());
    const std::vector<double> expected = float_attention(q, seen, 0.02);
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < head_dim; ++i) {
      error += (out[i] - expected[i]) * (out[i] - expected[i]);
      norm += expected[i] * expected[i];
    }
    EXPECT_LT(std::sqrt(error / norm), 0.02) << first_key;
  }
}

// Scaling by powers of two is exact, so the order in which a later split raises the maximum leaves no trace.
TEST(Attention, RescalingIsExact) {
  const std::size_t head_dim = 64;
  SplitSum low{.m = -3, .r = 123456789, .e = 0x1.234p-5F, .a = std::vector<std::int64_t>(head_dim, 777)};
  SplitSum high{.m = 9, .r = 98765432, .e = 0x1.8p-7F, .a = std::vector<std::int64_t>(head_dim, 0)};
  AttentionState state;
  merge_split(low, state);
  const float o = state.o[0];
  const float l = state.l;
  merge_split(high, state);
  EXPECT_EQ(state.o[0], o * 0x1p-12F);
  EXPECT_EQ(state.l, std::fma(98765432.0F, 0x1p-21F, l * 0x1p-12F));
  EXPECT_EQ(state.m, 9);
}

TEST(Attention, SumsStayExactAtTheirBounds) {
  const std::size_t head_dim = 64;
  const QuantizedHead value{std::vector<std::int16_t>(head_dim, kValueMax), 1.0F};
  const std::vector<QuantizedHead> values(kSplitKeys, value);
  const std::vector<Score> scores(kSplitKeys, {5, 1.4142135F});
  const SplitSum split = attend_split(scores, values);
  EXPECT_EQ(split.a[0], 1023 * 127 * 128);
  EXPECT_LT(split.a[0], 1 << 24);
  EXPECT_LT(split.r, 1 << 29);
}

TEST(Attention, FarKeysCountAsNothingAndHugeScoresAreClamped) {
  const std::vector<QuantizedHead> values(2, {std::vector<std::int16_t>(64, 1), 1.0F});
  const std::vector<Score> scores = {{0, 1.0F}, {-41, 1.0F}};
  const SplitSum split = attend_split(scores, values);
  EXPECT_EQ(split.r, 1 << 21);
  EXPECT_EQ(split.a[0], 1023);
  QuantizedHead huge{std::vector<std::int16_t>(64, 255), 1e15F};
  QuantizedHead key{std::vector<std::int16_t>(64, 1023), 1e15F};
  const Score score = key_score(huge, key, make_score_scale(0.125F, 64));
  EXPECT_NEAR(score.n, 1 << 20, 1);
}

TEST(Attention, ZeroValuesAndTinyQueries) {
  Context c = make_context(200, 64);
  const std::vector<float> zero(64, 0.0F);
  for (QuantizedHead& v : c.values) v = quantize_head(zero, kValueMax);
  std::vector<float> out(64, 1.0F);
  attention(quantize_head(zero, kQueryMax), c.keys, c.values, 0.125F, out);
  for (const float o : out) EXPECT_EQ(o, 0);
}

TEST(Attention, NonFiniteHeadsAreNoticed) {
  std::vector<float> x(64, 1.0F);
  x[5] = std::numeric_limits<float>::infinity();
  const QuantizedHead head = quantize_head(x, kKeyMax);
  EXPECT_FALSE(head.finite);
  EXPECT_TRUE(std::isnan(head.scale));
}

}  // namespace
}  // namespace nibble::oracle
