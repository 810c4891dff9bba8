#include "oracle/linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "format/contract_math.h"
#include "format/half.h"
#include "format/nvfp4.h"
#include "oracle/reduce.h"

namespace nibble::oracle {
namespace {

using namespace format;

u32 code_at(const Nvfp4Row& w, std::size_t i) {
  return nvfp4_code(w.codes[i / 2], static_cast<int>(i % 2));
}

void check_sizes(const Nvfp4Row& w, std::size_t n) {
  NIBBLE_CHECK(n % kNvfp4Group == 0 && w.codes.size() == n / 2 && w.scales.size() == n / kNvfp4Group,
               "an NVFP4 row and its activations differ in length");
}

// Calls f(block, first, n) for the blocks of `width` along n elements; the last may be shorter.
template <typename F>
void for_blocks(std::size_t n, std::size_t width, F f) {
  for (std::size_t b = 0, first = 0; first < n; ++b, first += width) f(b, first, std::min(width, n - first));
}

// The smallest exponent >= -52 such that max / 2^u rounds to at most 16383.
int unit_exponent(float max) {
  constexpr int kLargest = nc1::kRowMax;
  int u = nc1::kRowUnitMin;
  while (std::nearbyint(std::ldexp(double{max}, -u)) > kLargest) ++u;
  return u;
}

}  // namespace

std::int64_t nvfp4_block_sum(const Nvfp4Row& w, std::size_t first, std::span<const std::int16_t> q) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < q.size(); ++i) {
    const std::int64_t weight =
        std::int64_t{e4m3_x512(w.scales[(first + i) / kNvfp4Group])} * e2m1_x2(code_at(w, first + i));
    sum += weight * q[i];
  }
  return sum;
}

float dot_nvfp4_a11(const Nvfp4Row& w, const A11& x) {
  check_sizes(w, x.q.size());
  const float g = w.tensor_scale * 0x1p-10F;
  float acc = 0;
  for_blocks(x.q.size(), kA11Block, [&](std::size_t b, std::size_t first, std::size_t n) {
    const std::int64_t sum = nvfp4_block_sum(w, first, std::span(x.q).subspan(first, n));
    acc = fma_rn(static_cast<float>(sum), x.d[b] * g, acc);
  });
  return acc;
}

IntegerRow make_integer_row(std::span<const float> w) {
  IntegerRow row{std::vector<std::int16_t>(w.size()), std::vector<int>((w.size() + kA11Block - 1) / kA11Block)};
  for_blocks(w.size(), kA11Block, [&](std::size_t b, std::size_t first, std::size_t n) {
    u32 max_bits = 0;
    for (std::size_t i = first; i < first + n; ++i) max_bits = std::max(max_bits, abs_bits(w[i]));
    NIBBLE_CHECK(!is_nonfinite(bits_float(max_bits)), "16-bit weights are checked to be finite at load");
    row.unit[b] = unit_exponent(bits_float(max_bits));
    for (std::size_t i = first; i < first + n; ++i) {
      row.q[i] = static_cast<std::int16_t>(rne(w[i], pow2(-row.unit[b])));
    }
  });
  return row;
}

float dot_16bit_a11(const IntegerRow& w, const A11& x) {
  NIBBLE_CHECK(w.q.size() == x.q.size(), "a row and its activations differ in length");
  float acc = 0;
  for_blocks(x.q.size(), kA11Block, [&](std::size_t b, std::size_t first, std::size_t n) {
    std::int64_t sum = 0;
    for (std::size_t i = first; i < first + n; ++i) sum += std::int64_t{w.q[i]} * x.q[i];
    acc = fma_rn(static_cast<float>(sum), x.d[b] * pow2(w.unit[b]), acc);
  });
  return acc;
}

float dot_q8_0_a11(std::span<const std::byte> row, const A11& x) {
  constexpr std::size_t kBlock = 32;
  constexpr std::size_t kBlockBytes = 34;
  NIBBLE_CHECK(x.q.size() % kBlock == 0 && row.size() == x.q.size() / kBlock * kBlockBytes,
               "a Q8_0 row and its activations differ in length");
  float acc = 0;
  for_blocks(x.q.size(), kBlock, [&](std::size_t b, std::size_t first, std::size_t n) {
    const std::byte* block = row.data() + b * kBlockBytes;
    std::uint16_t scale = 0;
    std::memcpy(&scale, block, sizeof(scale));
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += std::int64_t{static_cast<std::int8_t>(block[2 + i])} * x.q[first + i];
    acc = fma_rn(static_cast<float>(sum), x.d[first / kA11Block] * f16_to_f32(scale), acc);
  });
  return acc;
}

float dot_fp8_a11(const Fp8Row& w, const A11& x) {
  NIBBLE_CHECK(w.codes.size() == x.q.size() && w.scales.size() == x.d.size(),
               "an FP8 row and its activations differ in length");
  float acc = 0;
  for_blocks(x.q.size(), kA11Block, [&](std::size_t b, std::size_t first, std::size_t n) {
    std::int64_t sum = 0;
    for (std::size_t i = first; i < first + n; ++i) sum += std::int64_t{e4m3_x512(w.codes[i])} * x.q[i];
    acc = fma_rn(static_cast<float>(sum), x.d[b] * (w.scales[b] * 0x1p-9F), acc);
  });
  return acc;
}

float dot_f32(std::span<const float> w, std::span<const float> x) {
  return reduce_products(w, x);
}

float dot_nvfp4_a16q8(const Nvfp4Row& w, const A16Q8& x) {
  check_sizes(w, x.q.size());
  float acc = 0;
  for_blocks(x.q.size(), kA16Q8Block, [&](std::size_t b, std::size_t first, std::size_t n) {
    if (x.d[b] == 0) return;
    const std::vector<std::int16_t> q(x.q.begin() + first, x.q.begin() + first + n);
    const std::int64_t sum = nvfp4_block_sum(w, first, q);
    float t = fma_rn(static_cast<float>(sum), 0x1p-10F, 0);
    t = fma_rn(t, x.d[b], 0);
    t = fma_rn(t, w.tensor_scale, 0);
    acc = fma_rn(1, t, acc);
  });
  return f16_to_f32(f32_to_f16(acc));
}

float dot_nvfp4_w4a4(const Nvfp4Row& w, const W4A4& x, float input_scale_inv) {
  check_sizes(w, x.codes.size());
  std::int64_t sum = 0;
  for (std::size_t g = 0; g < x.scales.size(); ++g) {
    std::int64_t group = 0;
    for (std::size_t i = g * kNvfp4Group; i < (g + 1) * kNvfp4Group; ++i) {
      group += std::int64_t{e2m1_x2(code_at(w, i))} * e2m1_x2(x.codes[i]);
    }
    sum += group * e4m3_x512(w.scales[g]) * e4m3_x512(x.scales[g]);
  }
  const float v = ((static_cast<float>(sum) * 0x1p-20F) * w.tensor_scale) * (1.0F / input_scale_inv);
  return f16_to_f32(f32_to_f16(v));
}

float dot_nvfp4_float(const Nvfp4Row& w, std::span<const float> x) {
  check_sizes(w, x.size());
  float acc = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    acc = fma_rn(nvfp4_dequantize(code_at(w, i), w.scales[i / kNvfp4Group], w.tensor_scale), x[i], acc);
  }
  return acc;
}

}  // namespace nibble::oracle
