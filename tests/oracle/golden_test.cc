// SHA-256 of what the oracle computes for fixed inputs, one an op. Another machine, compiler or backend that computes
// the same op on the same inputs must come to the same digest. Shapes are awkward on purpose: K = 80 and 1104 end in a
// shorter block, heads of 80 have a Hadamard size of 16, contexts end inside a split.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "format/e4m3.h"
#include "format/half.h"
#include "oracle/activation.h"
#include "oracle/attention.h"
#include "oracle/certificate.h"
#include "oracle/hadamard.h"
#include "oracle/quant_linear.h"
#include "oracle/reduce.h"
#include "oracle/rms_norm.h"
#include "oracle/rope.h"
#include "tests/oracle/golden_inputs.h"

namespace nibble::oracle {
namespace {

constexpr std::size_t kWidths[] = {16, 80, 256, 1104, 4864};

template <typename T>
void append(std::vector<std::byte>& bytes, const T& values) {
  const auto view = std::as_bytes(std::span(values));
  bytes.insert(bytes.end(), view.begin(), view.end());
}

void append(std::vector<std::byte>& bytes, float value) {
  append(bytes, std::span(&value, 1));
}

// The digest of what `f` appends for each width.
template <typename F>
std::string over_widths(F f) {
  std::vector<std::byte> bytes;
  for (const std::size_t n : kWidths) f(n, bytes);
  return sha256_hex(bytes);
}

// Digest of the outputs of `dot(row, token)` for 9 rows and 3 tokens of each width.
template <typename F>
std::string digest_of_dots(F dot) {
  return over_widths([&](std::size_t n, std::vector<std::byte>& bytes) {
    const golden::Nvfp4Matrix w = golden::nvfp4_matrix(11, 9, n);
    for (std::uint64_t token = 0; token < 3; ++token) {
      const std::vector<float> x = golden::activations(100 + token, n);
      for (std::size_t row = 0; row < 9; ++row) append(bytes, dot(w.row(row), x));
    }
  });
}

TEST(Golden, A11) {
  const std::string found = over_widths([](std::size_t n, std::vector<std::byte>& bytes) {
    const A11 a = quantize_a11(golden::activations(1, n));
    append(bytes, a.q);
    append(bytes, a.d);
  });
  EXPECT_EQ(found, "a46f14978186b377279ff72141f4289e83c429e784507d99b6dbda182ffa2014");
}

TEST(Golden, DotNvfp4A11) {
  EXPECT_EQ(
      digest_of_dots([](const Nvfp4Row& w, std::span<const float> x) { return dot_nvfp4_a11(w, quantize_a11(x)); }),
      "9c4a91a9a4e672915c86a1a4d901cd57856cd75c7707e50258104efadfdb90cb");
}

TEST(Golden, DotNvfp4A16Q8) {
  EXPECT_EQ(
      digest_of_dots([](const Nvfp4Row& w, std::span<const float> x) { return dot_nvfp4_a16q8(w, quantize_a16q8(x)); }),
      "3b09db63571b993a10cb5087350e4bd2ea6694bc0bd3d0907d9ba7e6b824afbc");
}

TEST(Golden, DotNvfp4W4A4) {
  EXPECT_EQ(digest_of_dots([](const Nvfp4Row& w, std::span<const float> x) {
              return dot_nvfp4_w4a4(w, quantize_w4a4(x, 12.5F), 12.5F);
            }),
            "f20a14500aef18037a177f23c7ccb81d1708800784dcf7e7becbef8551651fc5");
}

TEST(Golden, Dot16Bit) {
  const std::string found = over_widths([](std::size_t n, std::vector<std::byte>& bytes) {
    const A11 x = quantize_a11(golden::activations(2, n));
    std::vector<float> w = golden::activations(3, n);
    for (float& v : w) v = format::f16_to_f32(format::f32_to_f16(v * 0.02F));
    append(bytes, dot_16bit_a11(make_integer_row(w), x));
    w = golden::activations(4, n);
    for (float& v : w) v = format::bf16_to_f32(format::f32_to_bf16(v * 0x1p-30F));
    append(bytes, dot_16bit_a11(make_integer_row(w), x));
  });
  EXPECT_EQ(found, "6bf62f9aba7d590583bc8fdcd1a1a5362fc5d5c7bbb08e235bce4ec9c0bbda95");
}

TEST(Golden, DotQ8_0) {
  std::vector<std::byte> bytes;
  for (const std::size_t n : {32, 96, 256, 1120}) {
    append(bytes, dot_q8_0_a11(golden::q8_0_row(5, n), quantize_a11(golden::activations(6, n))));
  }
  EXPECT_EQ(sha256_hex(bytes), "82cdb79ed78c5883555fb3b8a6a856f061b729271cf46e2a158d6e61998361fa");
}

TEST(Golden, DotFp8) {
  std::vector<std::byte> bytes;
  for (const std::size_t n : {1, 63, 128, 257, 4864}) {
    std::vector<std::uint8_t> codes(n);
    for (std::size_t i = 0; i < n; ++i) {
      codes[i] = static_cast<std::uint8_t>(golden::word(16, i));
      if (format::e4m3_is_nan(codes[i])) codes[i] = 0;
    }
    Fp8Row row{codes, {}};
    for (std::size_t b = 0; b < (n + 63) / 64; ++b)
      row.scales.push_back(0x1p-7F + static_cast<float>(b / 2) * 0x1p-13F);
    append(bytes, dot_fp8_a11(row, quantize_a11(golden::activations(17, n))));
  }
  EXPECT_EQ(sha256_hex(bytes), "1fabbadd551f71fc92ed9ed61b5170760640be34ad16e6b079849c0ad0b69660");
}

TEST(Golden, DotQuant) {
  std::vector<std::byte> bytes;
  for (const DType dtype : golden::kQuantTypes) {
    const QuantFormat& format = *find_quant_format(dtype);
    for (const std::size_t n : {32, 96, 256, 1120, 4864}) {
      if (n % dtype_info(dtype).block_size != 0) continue;
      append(bytes, dot_quant_a11(format, golden::quant_row(14, dtype, n), quantize_a11(golden::activations(15, n))));
    }
  }
  EXPECT_EQ(sha256_hex(bytes), "a5a241ec54a78424c31844b5e993311abc6d8c823183a9df6769968b3141cf20");
}

TEST(Golden, RmsNormAndReduction) {
  const std::string found = over_widths([](std::size_t n, std::vector<std::byte>& bytes) {
    const std::vector<float> x = golden::activations(7, n);
    const std::vector<float> w = golden::activations(8, n);
    append(bytes, reduce_products(x, w));
    std::vector<float> y(n);
    rms_norm(x, w, 1e-5F, y);
    append(bytes, y);
  });
  EXPECT_EQ(found, "178dc1ef438f566dff5f138cb03d3ab004f18a8f71b80c6ba39a8274aac909c4");
}

TEST(Golden, Gates) {
  const std::vector<float> gate = golden::activations(9, 4864);
  const std::vector<float> up = golden::activations(10, 4864);
  std::vector<float> out(gate.size());
  std::vector<std::byte> bytes;
  silu_mul(gate, up, out);
  append(bytes, out);
  gelu_tanh_mul(gate, up, out);
  append(bytes, out);
  EXPECT_EQ(sha256_hex(bytes), "f3ed9a1acf3833b7c21fb13daf0e258bc5e5b3abe047cee9d94bdc8077ac1949");
}

TEST(Golden, RopeAndHadamard) {
  std::vector<std::byte> bytes;
  for (const bool interleaved : {false, true}) {
    for (const std::size_t head_dim : {64, 80, 128}) {
      std::vector<float> head = golden::activations(12, head_dim);
      const auto table = oscillator_cos_sin(1234);
      rope(head, std::span(table).first(head_dim / 4 * 2), interleaved);
      append(bytes, head);
      hadamard(head);
      append(bytes, head);
    }
  }
  EXPECT_EQ(sha256_hex(bytes), "1d13e8a4e037e525655ea82a2ff7bae32267e9bba3cd6f103b1090d4909ab11f");
}

TEST(Golden, Attention) {
  std::vector<std::byte> bytes;
  for (const std::size_t head_dim : {64, 80, 128}) {
    for (const std::size_t n_keys : {1, 127, 128, 129, 700}) {
      std::vector<QuantizedHead> keys;
      std::vector<QuantizedHead> values;
      for (std::size_t j = 0; j < n_keys; ++j) {
        keys.push_back(quantize_head(golden::activations(1000 + j, head_dim), kKeyMax));
        values.push_back(quantize_head(golden::activations(5000 + j, head_dim), kValueMax));
      }
      std::vector<float> out(head_dim);
      const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
      attention(quantize_head(golden::activations(9000, head_dim), kQueryMax), keys, values, scale, out);
      append(bytes, out);
    }
  }
  EXPECT_EQ(sha256_hex(bytes), "205d8091d50c0663552d87f054496c09e55a7d1f5a9edd1ec8ea64953eea350d");
}

TEST(Golden, Sampling) {
  std::vector<float> logits = golden::activations(13, 5000);
  SamplingParameters parameters{.temperature = 0.8F, .top_k = 400, .top_p = 0.95F, .min_p = 0.001F};
  parameters.repetition_penalty = 1.1F;
  parameters.presence_penalty = 0.25F;
  parameters.logit_bias = {{17, 2.5F}, {18, -3}};
  const std::vector<std::int32_t> context = {60, 121, 182, 60, 999};
  apply_penalties(parameters, context, logits);
  std::vector<std::int32_t> tokens;
  for (std::uint64_t position = 0; position < 2000; ++position) {
    tokens.push_back(select_token(parameters, logits, token_noise(42, position, 7)));
  }
  EXPECT_EQ(sha256_hex(std::as_bytes(std::span(tokens))),
            "dff0e74bf764e7442862da0a6a5706e53222e0d3da3d7c7f3bfa2608a2314c0d");
}

}  // namespace
}  // namespace nibble::oracle
