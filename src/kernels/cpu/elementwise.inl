// Ops in plain f32, as the contract writes them. The loops are free of branches, so that each instruction set's object
// gets them vectorized; with contraction and re-association off that cannot change a bit.
#pragma once

namespace nibble::kernels::cpu {
namespace {

// Section 5: 256 fma chains, then a halving tree.
inline float reduce_products(const float* a, const float* b, int n) {
  if constexpr (!kIsPinned) {
    float sum = 0.0F;
    for (int i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
  }
  constexpr int kReduceLanes = format::nc1::kReduceLanes;
  alignas(64) float lanes[kReduceLanes] = {};
  int i = 0;
  for (; i + kReduceLanes <= n; i += kReduceLanes) {
    for (int j = 0; j < kReduceLanes; ++j) lanes[j] = format::fma_rn(a[i + j], b[i + j], lanes[j]);
  }
  for (int j = 0; i + j < n; ++j) lanes[j] = format::fma_rn(a[i + j], b[i + j], lanes[j]);
  for (int half = kReduceLanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] = lanes[j] + lanes[j + half];
  }
  return lanes[0];
}

void rms_norm(const float* x, const float* weight, int n, float eps, float* out) {
  const float v = format::fma_rn(reduce_products(x, x, n), 1.0F / static_cast<float>(n), eps);
  const float r = 1.0F / format::sqrt_rn(v);
  for (int i = 0; i < n; ++i) out[i] = (x[i] * r) * weight[i];
}

void rope(float* x, int n_heads, int head_dim, const float* cos_sin, int rotary_dim, bool interleaved) {
  const int n_pairs = rotary_dim / 2;
  const int step = interleaved ? 2 : 1, distance = interleaved ? 1 : n_pairs;
  for (int head = 0; head < n_heads; ++head) {
    float* h = x + static_cast<std::size_t>(head) * head_dim;
    for (int i = 0; i < n_pairs; ++i) {
      const float cos = cos_sin[2 * i], sin = cos_sin[2 * i + 1];
      const float a = h[step * i], b = h[step * i + distance];
      h[step * i] = format::fma_rn(a, cos, -(b * sin));
      h[step * i + distance] = format::fma_rn(a, sin, b * cos);
    }
  }
}

void silu_mul(const float* gate, const float* up, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = format::silu(gate[i]) * up[i];
}

void gelu_mul(const float* gate, const float* up, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = format::gelu_tanh(gate[i]) * up[i];
}

void scale(float* x, float factor, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] = x[i] * factor;
}

void add(float* x, const float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] = x[i] + y[i];
}

void embed_f16(const std::uint16_t* row, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = format::f16_to_f32(row[i]);
}
void embed_bf16(const std::uint16_t* row, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = format::bf16_to_f32(row[i]);
}
void embed_q8_0(const std::uint8_t* row, int n, float* out) {
  for (int i = 0; i < n; ++i) {
    const std::uint8_t* block = row + 34 * (i / 32);
    const float scale = format::f16_to_f32(block[0] | block[1] << 8);
    out[i] = scale * static_cast<float>(static_cast<std::int8_t>(block[2 + i % 32]));
  }
}

float multiply_add_probe(float a, float b, float c) {
  return a * b + c;
}

std::uint64_t read_sum(const void* data, std::size_t bytes) {
  const std::uint64_t* words = static_cast<const std::uint64_t*>(data);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes / sizeof *words; ++i) sum += words[i];
  return sum;
}

}  // namespace
}  // namespace nibble::kernels::cpu
