// The reference backend against src/oracle, bit for bit in the contract's arithmetic, and against plain double loops in
// float arithmetic.
#include "kernels/reference/reference_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "format/half.h"
#include "format/nvfp4.h"
#include "kernels/reference/probe_backend.h"
#include "oracle/activation.h"
#include "oracle/attention.h"
#include "oracle/quant_linear.h"
#include "oracle/rms_norm.h"
#include "tests/oracle/golden_inputs.h"

namespace nibble::kernels {
namespace {

namespace golden = oracle::golden;

constexpr int kTokens = 7;

std::unique_ptr<Backend> contract_backend(int n_threads = 2) {
  return make_reference_backend({.n_threads = n_threads});
}

std::unique_ptr<Backend> float_backend() {
  return make_reference_backend(
      {.activations = ReferenceActivations::kFloat, .attention = ReferenceAttention::kFloat, .n_threads = 2});
}

// x: [kTokens, n_in] -> [kTokens, n_out]
std::vector<float> run_linear(Backend& backend, const WeightSource& source, std::span<const float> x, int n_in,
                              const float* bias = nullptr) {
  auto linear = backend.make_linear(source);
  EXPECT_TRUE(linear.ok());
  auto input = backend.make_linear_input(kTokens, n_in);
  std::vector<float> out(static_cast<std::size_t>(kTokens) * (*linear)->n_out);
  backend.begin_step(kTokens);
  backend.prepare_input(x.data(), kTokens, *input);
  backend.linear(*input, **linear, bias, out.data());
  for (const auto flag : backend.end_step()) EXPECT_EQ(flag, 0);
  return out;
}

std::vector<std::byte> bytes_of_half(std::span<const float> w, bool bf16) {
  std::vector<std::byte> bytes(w.size() * 2);
  for (std::size_t i = 0; i < w.size(); ++i) {
    const std::uint16_t h = bf16 ? format::f32_to_bf16(w[i]) : format::f32_to_f16(w[i]);
    std::memcpy(&bytes[2 * i], &h, 2);
  }
  return bytes;
}

TEST(ReferenceLinear, Nvfp4HasTheBitsOfTheOracle) {
  for (const std::size_t n_in : {16, 80, 576, 1104}) {
    const int n_out = 45;
    const golden::Nvfp4Matrix m = golden::nvfp4_matrix(n_in, n_out, n_in);
    const Nvfp4View view{"w", std::uint64_t(n_out), n_in, m.codes, m.scales, m.tensor_scale, {}};
    const std::vector<float> x = golden::activations(3, kTokens * n_in);
    const std::vector<float> bias = golden::activations(4, n_out);
    const std::vector<float> out = run_linear(*contract_backend(), view, x, static_cast<int>(n_in), bias.data());
    for (int t = 0; t < kTokens; ++t) {
      const oracle::A11 a = oracle::quantize_a11(std::span(x).subspan(t * n_in, n_in));
      for (int r = 0; r < n_out; ++r) {
        ASSERT_EQ(out[t * n_out + r], oracle::dot_nvfp4_a11(m.row(r), a) + bias[r]) << n_in << ' ' << t << ' ' << r;
      }
    }
  }
}

TEST(ReferenceLinear, SixteenBitAndQ8HaveTheBitsOfTheOracle) {
  const std::size_t n_in = 608;
  const std::size_t n_out = 35;
  const std::vector<float> x = golden::activations(5, kTokens * n_in);
  for (const bool bf16 : {false, true}) {
    std::vector<float> w = golden::activations(6, n_out * n_in);
    const std::vector<std::byte> bytes = bytes_of_half(w, bf16);
    for (float& v : w)
      v = bf16 ? format::bf16_to_f32(format::f32_to_bf16(v)) : format::f16_to_f32(format::f32_to_f16(v));
    const TensorView view{"w", bf16 ? DType::kBF16 : DType::kF16, {n_in, n_out}, bytes};
    const std::vector<float> out = run_linear(*contract_backend(), view, x, n_in);
    for (std::size_t t = 0; t < kTokens; ++t) {
      const oracle::A11 a = oracle::quantize_a11(std::span(x).subspan(t * n_in, n_in));
      for (std::size_t r = 0; r < n_out; ++r) {
        const oracle::IntegerRow row = oracle::make_integer_row(std::span(w).subspan(r * n_in, n_in));
        ASSERT_EQ(out[t * n_out + r], oracle::dot_16bit_a11(row, a));
      }
    }
  }
  std::vector<std::byte> q8;
  for (std::size_t r = 0; r < n_out; ++r) {
    const auto row = golden::q8_0_row(70 + r, n_in);
    q8.insert(q8.end(), row.begin(), row.end());
  }
  const std::vector<float> out =
      run_linear(*contract_backend(), TensorView{"w", DType::kQ8_0, {n_in, n_out}, q8}, x, n_in);
  for (std::size_t t = 0; t < kTokens; ++t) {
    const oracle::A11 a = oracle::quantize_a11(std::span(x).subspan(t * n_in, n_in));
    for (std::size_t r = 0; r < n_out; ++r) {
      const auto row = std::span(q8).subspan(r * (n_in / 32 * 34), n_in / 32 * 34);
      ASSERT_EQ(out[t * n_out + r], oracle::dot_q8_0_a11(row, a));
    }
  }
}

TEST(ReferenceLinear, BlockQuantizedTypesHaveTheBitsOfTheOracle) {
  constexpr std::size_t kOut = 35;
  for (const DType dtype : golden::kQuantTypes) {
    for (const std::size_t n_in : {96, 768}) {
      if (n_in % dtype_info(dtype).block_size != 0) continue;
      const std::vector<std::byte> bytes = golden::quant_row(17, dtype, kOut * n_in);
      const TensorView view{"w", dtype, {n_in, kOut}, bytes};
      const std::vector<float> x = golden::activations(18, kTokens * n_in);
      const std::vector<float> out = run_linear(*contract_backend(), view, x, static_cast<int>(n_in));
      for (std::size_t t = 0; t < kTokens; ++t) {
        const oracle::A11 a = oracle::quantize_a11(std::span(x).subspan(t * n_in, n_in));
        for (std::size_t r = 0; r < kOut; ++r) {
          ASSERT_EQ(out[t * kOut + r], oracle::dot_quant_a11(*find_quant_format(dtype), view.row_span(r), a))
              << dtype_name(dtype) << ' ' << n_in << ' ' << t << ' ' << r;
        }
      }
    }
  }
}

TEST(ReferenceLinear, RefusesScalesThatAreNotFinite) {
  for (const DType dtype : golden::kQuantTypes) {
    for (const std::size_t offset : golden::scale_offsets(dtype)) {
      std::vector<std::byte> bytes = golden::quant_row(19, dtype, std::size_t{3} * 512);
      const std::size_t block = bytes_of(dtype, 512 + dtype_info(dtype).block_size);  // row 1, block 1
      bytes[block + offset + 1] = std::byte{0x7C};
      const auto linear = contract_backend()->make_linear(TensorView{"w", dtype, {512, 3}, bytes});
      ASSERT_FALSE(linear.ok()) << dtype_name(dtype);
      EXPECT_EQ(linear.error().tensor, "w");
      EXPECT_EQ(linear.error().found, "a scale that is NaN or infinite in row 1, block 1") << dtype_name(dtype);
    }
  }
}

TEST(ReferenceLinear, F32IsCanonicalUnlessMeasured) {
  const std::size_t n_in = 300;
  const std::size_t n_out = 5;
  const std::vector<float> w = golden::activations(8, n_out * n_in);
  const std::vector<float> x = golden::activations(9, kTokens * n_in);
  const TensorView view{"w", DType::kF32, {n_in, n_out}, std::as_bytes(std::span(w))};
  const std::vector<float> canonical = run_linear(*contract_backend(), view, x, n_in);
  const std::vector<float> plain = run_linear(*float_backend(), view, x, n_in);
  auto measuring = make_reference_backend({.quantize_inputs_of_f32_weights = true, .n_threads = 1});
  const std::vector<float> quantized = run_linear(*measuring, view, x, n_in);
  for (std::size_t t = 0; t < kTokens; ++t) {
    const auto token = std::span(x).subspan(t * n_in, n_in);
    const oracle::A11 a = oracle::quantize_a11(token);
    for (std::size_t r = 0; r < n_out; ++r) {
      const auto row = std::span(w).subspan(r * n_in, n_in);
      double exact = 0;
      double with_a11 = 0;
      for (std::size_t k = 0; k < n_in; ++k) {
        exact += double{row[k]} * token[k];
        with_a11 += double{row[k]} * (a.q[k] * a.d[k / 64]);
      }
      EXPECT_EQ(canonical[t * n_out + r], oracle::dot_f32(row, token));
      EXPECT_NEAR(plain[t * n_out + r], exact, 2e-3);
      EXPECT_NEAR(quantized[t * n_out + r], with_a11, 2e-3);
    }
  }
}

TEST(ReferenceLinear, FloatModeMultipliesDequantizedWeights) {
  const std::size_t n_in = 80;
  const golden::Nvfp4Matrix m = golden::nvfp4_matrix(2, 4, n_in);
  const std::vector<float> x = golden::activations(3, kTokens * n_in);
  const Nvfp4View view{"w", 4, n_in, m.codes, m.scales, m.tensor_scale, {}};
  const std::vector<float> out = run_linear(*float_backend(), view, x, n_in);
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < 4; ++r) {
      const float expected = oracle::dot_nvfp4_float(m.row(r), std::span(x).subspan(t * n_in, n_in));
      EXPECT_NEAR(out[t * 4 + r], expected, 1e-4 * (1 + std::abs(expected)));
    }
  }
}

TEST(ReferenceLinear, RefusesWhatItCannotMultiply) {
  const std::vector<std::byte> bytes(18);
  const auto result = contract_backend()->make_linear(TensorView{"blk.0.w", DType::kIQ4_NL, {32, 1}, bytes});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().tensor, "blk.0.w");
  std::vector<std::byte> infinite = bytes_of_half(std::vector<float>{1e30F, 1.0F}, false);
  EXPECT_FALSE(contract_backend()->make_linear(TensorView{"w", DType::kF16, {2, 1}, infinite}).ok());
}

struct Heads {
  int n_heads, n_kv_heads, head_dim, n_tokens;
  std::vector<float> q, k, v;  // [n_tokens, heads, head_dim]
};

Heads make_heads(int n_heads, int n_kv_heads, int head_dim, int n_tokens) {
  return {n_heads,
          n_kv_heads,
          head_dim,
          n_tokens,
          golden::activations(1, std::size_t(n_tokens) * n_heads * head_dim),
          golden::activations(2, std::size_t(n_tokens) * n_kv_heads * head_dim),
          golden::activations(3, std::size_t(n_tokens) * n_kv_heads * head_dim)};
}

// Stores and attends in steps of `chunk` rows.
std::vector<float> run_attention(Backend& backend, const Heads& h, int chunk) {
  auto cache = backend.make_kv_cache({1, h.n_kv_heads, h.head_dim, h.n_tokens});
  std::vector<float> out(h.q.size());
  const AttentionShape shape{h.n_heads, h.n_kv_heads, h.head_dim, 0.3F / std::sqrt(static_cast<float>(h.head_dim))};
  for (int first = 0; first < h.n_tokens; first += chunk) {
    std::vector<TokenRow> rows;
    for (int pos = first; pos < std::min(first + chunk, h.n_tokens); ++pos) rows.push_back({cache.get(), pos});
    const std::size_t kv = std::size_t(first) * h.n_kv_heads * h.head_dim;
    const std::size_t at = std::size_t(first) * h.n_heads * h.head_dim;
    backend.begin_step(static_cast<int>(rows.size()));
    backend.store_kv(&h.k[kv], &h.v[kv], rows, 0);
    backend.attention(&h.q[at], rows, 0, shape, &out[at]);
    for (const auto flag : backend.end_step()) EXPECT_EQ(flag, 0);
  }
  return out;
}

TEST(ReferenceAttention, HasTheBitsOfTheOracleForAnyChunk) {
  for (const int head_dim : {64, 80, 128}) {
    const Heads h = make_heads(3, 1, head_dim, 300);
    const std::vector<float> out = run_attention(*contract_backend(), h, 37);
    EXPECT_EQ(run_attention(*contract_backend(1), h, 300), out);
    std::vector<oracle::QuantizedHead> keys;
    std::vector<oracle::QuantizedHead> values;
    const float scale = 0.3F / std::sqrt(static_cast<float>(head_dim));
    for (int t = 0; t < h.n_tokens; ++t) {
      const std::size_t at = std::size_t(t) * head_dim;
      keys.push_back(oracle::quantize_head({&h.k[at], std::size_t(head_dim)}, oracle::kKeyMax));
      values.push_back(oracle::quantize_head({&h.v[at], std::size_t(head_dim)}, oracle::kValueMax));
      if (t % 43 != 0 && t % 128 > 1) continue;
      for (int head = 0; head < 3; ++head) {
        const std::size_t q_at = (std::size_t(t) * 3 + head) * head_dim;
        std::vector<float> expected(head_dim);
        const auto q = oracle::quantize_head({&h.q[q_at], std::size_t(head_dim)}, oracle::kQueryMax);
        oracle::attention(q, keys, values, scale, expected);
        for (int i = 0; i < head_dim; ++i) ASSERT_EQ(out[q_at + i], expected[i]) << head_dim << ' ' << t << ' ' << head;
      }
    }
  }
}

TEST(ReferenceAttention, FloatModeIsSoftmaxAttention) {
  const Heads h = make_heads(4, 2, 64, 200);
  const std::vector<float> out = run_attention(*float_backend(), h, 64);
  for (const int t : {0, 1, 127, 128, 199}) {
    for (int head = 0; head < 4; ++head) {
      std::vector<double> expected(64);
      double sum = 0;
      for (int j = 0; j <= t; ++j) {
        double s = 0;
        const std::size_t kv = (std::size_t(j) * 2 + head / 2) * 64;
        for (int i = 0; i < 64; ++i) s += double{h.q[(std::size_t(t) * 4 + head) * 64 + i]} * h.k[kv + i];
        const double p = std::exp(s * (0.3F / 8));
        sum += p;
        for (int i = 0; i < 64; ++i) expected[i] += p * h.v[kv + i];
      }
      for (int i = 0; i < 64; ++i) {
        EXPECT_NEAR(out[(std::size_t(t) * 4 + head) * 64 + i], expected[i] / sum, 2e-5) << t << ' ' << head;
      }
    }
  }
}

TEST(ReferenceBackend, RowsOfOtherSequencesDoNotMix) {
  const Heads h = make_heads(2, 1, 64, 20);
  auto backend = contract_backend();
  auto a = backend->make_kv_cache({1, 1, 64, 20});
  auto b = backend->make_kv_cache({1, 1, 64, 20});
  std::vector<TokenRow> rows;
  for (int i = 0; i < 20; ++i) rows.push_back({i % 3 == 0 ? a.get() : b.get(), i % 3 == 0 ? i / 3 : i - i / 3 - 1});
  std::vector<float> out(h.q.size());
  const AttentionShape shape{2, 1, 64, 0.125F};
  backend->begin_step(20);
  backend->store_kv(h.k.data(), h.v.data(), rows, 0);
  backend->attention(h.q.data(), rows, 0, shape, out.data());
  std::vector<float> alone(128);
  auto c = backend->make_kv_cache({1, 1, 64, 20});
  for (int i = 0; i <= 18; i += 3) {
    const std::vector<TokenRow> row = {{c.get(), i / 3}};
    backend->begin_step(1);
    backend->store_kv(&h.k[i * 64], &h.v[i * 64], row, 0);
    backend->attention(&h.q[i * 128], row, 0, shape, alone.data());
  }
  EXPECT_EQ(std::vector<float>(out.begin() + 18 * 128, out.begin() + 19 * 128), alone);
}

TEST(ReferenceBackend, NonFiniteRowsAreReported) {
  for (auto& backend : {contract_backend(), float_backend()}) {
    std::vector<float> x = golden::activations(1, 3 * 96);
    x[96 + 7] = std::numeric_limits<float>::quiet_NaN();
    auto input = backend->make_linear_input(3, 96);
    backend->begin_step(3);
    backend->prepare_input(x.data(), 3, *input);
    const auto flags = backend->end_step();
    EXPECT_EQ(std::vector<int>(flags.begin(), flags.end()), std::vector<int>({0, 1, 0}));
  }
}

TEST(ReferenceBackend, GatesAndNormsAreTheOracles) {
  auto backend = contract_backend();
  const std::vector<float> gate = golden::activations(1, 5000);
  const std::vector<float> up = golden::activations(2, 5000);
  std::vector<float> found(5000);
  std::vector<float> expected(5000);
  backend->silu_mul(gate.data(), up.data(), 5000, found.data());
  oracle::silu_mul(gate, up, expected);
  EXPECT_EQ(found, expected);
  backend->rms_norm(gate.data(), up.data(), 2, 2500, 1e-6F, found.data());
  oracle::rms_norm(std::span(gate).first(2500), std::span(up).first(2500), 1e-6F, std::span(expected).first(2500));
  for (int i = 0; i < 2500; ++i) ASSERT_EQ(found[i], expected[i]);
}

// Weights made by one reference backend and run by another: only the activations differ.
TEST(ReferenceBackend, WeightsAreSharedBetweenArithmetics) {
  const std::size_t n_in = 96;
  const std::vector<float> w = golden::activations(1, 3 * n_in);
  const std::vector<float> x = golden::activations(2, kTokens * n_in);
  const TensorView view{"w", DType::kF32, {n_in, 3}, std::as_bytes(std::span(w))};
  auto plain = float_backend();
  auto a11 = make_reference_backend({.quantize_inputs_of_f32_weights = true, .n_threads = 1});
  const auto shared = plain->make_linear(view);
  ASSERT_TRUE(shared.ok());
  std::vector<float> found(kTokens * 3);
  auto input = a11->make_linear_input(kTokens, n_in);
  a11->prepare_input(x.data(), kTokens, *input);
  a11->linear(*input, **shared, nullptr, found.data());
  EXPECT_EQ(found, run_linear(*a11, view, x, n_in));
  EXPECT_NE(found, run_linear(*plain, view, x, n_in));
}

TEST(Probe, RunsTheFloatModelAndMeasuresEachHead) {
  const Heads h = make_heads(4, 2, 64, 150);
  auto probe = make_probe_backend(1);
  EXPECT_EQ(run_attention(*probe, h, 64), run_attention(*float_backend(), h, 64));
  int n_attention = 0;
  for (const ProbeFigure& f : probe->figures()) {
    const double rms = f.error.relative_rms();
    EXPECT_EQ(f.layer, 0);
    switch (f.kind) {
      case ProbeKind::kQuery:
        EXPECT_TRUE(rms > 1e-3 && rms < 8e-3) << rms;
        break;
      case ProbeKind::kKey:
        EXPECT_TRUE(rms > 2e-4 && rms < 2e-3) << rms;
        break;
      case ProbeKind::kValue:
        EXPECT_TRUE(rms > 2e-3 && rms < 2e-2) << rms;
        break;
      case ProbeKind::kAttention:
        EXPECT_TRUE(++n_attention > 0 && rms > 0 && rms < 0.1) << rms;
        break;
      case ProbeKind::kInput:
        ADD_FAILURE();
        break;
    }
  }
  EXPECT_EQ(n_attention, 4);
}

}  // namespace
}  // namespace nibble::kernels
