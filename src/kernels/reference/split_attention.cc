#include "kernels/reference/split_attention.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "format/contract_math.h"
#include "kernels/reference/vectorize.h"

namespace nibble::kernels::reference {
namespace {

using namespace format;

constexpr int kChunk = 64;
constexpr int kSmallestExponent = -40;

// s_j = the chunk sums of q . k_j, added left to right.
NIBBLE_INLINE void dot_keys(const float* q, const float* keys /* [head_dim, 128] */, int head_dim, float* s) {
  for (int first = 0; first < head_dim; first += kChunk) {
    float sum[kSplit] = {};
    for (int i = first; i < std::min(first + kChunk, head_dim); ++i) {
      for (int j = 0; j < kSplit; ++j) sum[j] = fma_rn(q[i], keys[i * kSplit + j], sum[j]);
    }
    for (int j = 0; j < kSplit; ++j) s[j] = first == 0 ? sum[j] : s[j] + sum[j];
  }
}

// out_i = sum over keys of u_j * v_ji
NIBBLE_INLINE void weigh_values(const float* u, const float* values /* [128, head_dim] */, int n, int head_dim,
                                float* out) {
  for (int first = 0; first < head_dim; first += kChunk) {
    const int width = std::min(kChunk, head_dim - first);
    float sum[kChunk] = {};
    if (width == kChunk) {
      for (int j = 0; j < n; ++j) {
        for (int i = 0; i < kChunk; ++i) sum[i] = fma_rn(u[j], values[j * head_dim + first + i], sum[i]);
      }
    } else {
      for (int j = 0; j < n; ++j) {
        for (int i = 0; i < width; ++i) sum[i] = fma_rn(u[j], values[j * head_dim + first + i], sum[i]);
      }
    }
    for (int i = 0; i < width; ++i) out[first + i] = sum[i];
  }
}

struct SplitWeights {
  float u[kSplit];
  float e = 0;
  float r = 0;  // f32(R)
  int m = 0;
};

// Steps 3 and 4 of the contract for n keys of a split.
NIBBLE_INLINE void weigh_keys(const float* s, float q_scale, const float* key_scales, const float* value_scales, int n,
                              float c, float limit, SplitWeights& out) {
  int exponent[kSplit];
  float p[kSplit];
  for (int j = 0; j < n; ++j) {
    const float t = clamp_abs(s[j] * (q_scale * key_scales[j]), limit);
    exponent[j] = rne(t, c);
    p[j] = exp2_poly(fma_rn(t, c, -static_cast<float>(exponent[j])));
  }
  out.m = std::numeric_limits<int>::min();
  for (int j = 0; j < n; ++j) out.m = std::max(out.m, exponent[j]);
  float w[kSplit];
  int r = 0;
  float largest = 0;
  for (int j = 0; j < n; ++j) {
    const int below = exponent[j] - out.m;
    const int shift = std::max(below, kSmallestExponent);
    const bool counts = below >= kSmallestExponent;
    w[j] = counts ? (p[j] * value_scales[j]) * pow2(shift) : 0.0F;
    r += counts ? rne(p[j], pow2(21 + shift)) : 0;
    largest = w[j] > largest ? w[j] : largest;
  }
  out.r = static_cast<float>(r);
  const bool seen = largest >= 0x1p-53F;
  const float inv = seen ? 1023.0F / largest : 0.0F;
  out.e = seen ? largest / 1023.0F : 0.0F;
  for (int j = 0; j < n; ++j) out.u[j] = static_cast<float>(rne(w[j], inv));
}

// e^x to 1e-14 for x <= 0, by Taylor's series around the nearest multiple of ln 2; 0 below -700. Without branches and
// divisions, so that a loop of it is vectorized.
NIBBLE_INLINE double exp_double(double x) {
  const double bounded = x < -700 ? -700 : x;
  const double shifted = bounded * 0x1.71547652b82fep0 + 0x1.8p52;  // the integer in the last places
  const double n = shifted - 0x1.8p52;
  const double r = (bounded - n * 0x1.62e42fefap-1) - n * 0x1.cf79abc9e3b3ap-40;
  double e = 1.0 / 39916800;
  e = e * r + 1.0 / 3628800;
  e = e * r + 1.0 / 362880;
  e = e * r + 1.0 / 40320;
  e = e * r + 1.0 / 5040;
  e = e * r + 1.0 / 720;
  e = e * r + 1.0 / 120;
  e = e * r + 1.0 / 24;
  e = e * r + 1.0 / 6;
  e = e * r + 1.0 / 2;
  e = e * r + 1;
  e = e * r + 1;
  const double power = std::bit_cast<double>((std::bit_cast<std::uint64_t>(shifted) + 1023) << 52);
  return x < -700 ? 0 : e * power;
}

float pow2_or_zero(int n) {
  return n < kSmallestExponent ? 0.0F : pow2(n);
}

}  // namespace

HeadCache::HeadCache(int capacity, int dim) : head_dim(dim) {
  const std::size_t positions = static_cast<std::size_t>((capacity + kSplit - 1) / kSplit) * kSplit;
  keys = AlignedBuffer<float>(positions * dim);
  key_scales = AlignedBuffer<float>(positions);
  values = AlignedBuffer<float>(positions * dim);
  value_scales = AlignedBuffer<float>(positions);
}

void HeadCache::store(int pos, const float* k, float k_scale, const float* v, float v_scale) {
  const std::size_t split = static_cast<std::size_t>(pos / kSplit) * kSplit * head_dim;
  for (int i = 0; i < head_dim; ++i) {
    keys[split + static_cast<std::size_t>(i) * kSplit + pos % kSplit] = k[i];
    values[static_cast<std::size_t>(pos) * head_dim + i] = v[i];
  }
  key_scales[pos] = k_scale;
  value_scales[pos] = v_scale;
}

NIBBLE_VECTORIZED void attend_integer(const HeadCache& cache, int index, float c, float limit, HeadState& state) {
  const std::size_t first = static_cast<std::size_t>(index) * kSplit;
  const int skipped = std::max(0, state.first_key - static_cast<int>(first));
  const int n = std::min(kSplit, state.n_keys - static_cast<int>(first)) - skipped;
  float s[kSplit];
  dot_keys(state.q.data(), &cache.keys[first * cache.head_dim], cache.head_dim, s);
  SplitWeights weights;
  weigh_keys(s + skipped, state.q_scale, &cache.key_scales[first + skipped], &cache.value_scales[first + skipped], n, c,
             limit, weights);
  float* a = state.partial.data();
  weigh_values(weights.u, &cache.values[(first + skipped) * cache.head_dim], n, cache.head_dim, a);

  if (state.empty) {
    state.empty = false;
    state.m = weights.m;
    state.l = 0;
    state.o.assign(cache.head_dim, 0.0F);
  }
  const int m = std::max(state.m, weights.m);
  const float old_factor = pow2_or_zero(state.m - m);
  const float new_factor = pow2_or_zero(weights.m - m);
  for (int i = 0; i < cache.head_dim; ++i) {
    float o = state.o[i] * old_factor;
    if (old_factor < 1 && abs_value(o) < 0x1p-80F) o = 0;
    state.o[i] = fma_rn(a[i], weights.e * new_factor, o);
  }
  state.l = fma_rn(weights.r, new_factor * 0x1p-21F, state.l * old_factor);
  state.m = m;
}

NIBBLE_VECTORIZED void attend_float(const HeadCache& cache, int index, float scale, HeadState& state) {
  const std::size_t first = static_cast<std::size_t>(index) * kSplit;
  const int skipped = std::max(0, state.first_key - static_cast<int>(first));
  const int n = std::min(kSplit, state.n_keys - static_cast<int>(first)) - skipped;
  float s[kSplit];
  dot_keys(state.q.data(), &cache.keys[first * cache.head_dim], cache.head_dim, s);
  const float* seen = s + skipped;
  float largest = seen[0];
  for (int j = 1; j < n; ++j) largest = std::max(largest, seen[j]);
  const double max = static_cast<double>(largest) * scale;
  if (state.empty) {
    state.empty = false;
    state.max = max;
    state.sums.assign(cache.head_dim, 0.0);
  }
  const double new_max = std::max(state.max, max);
  const double rescale = exp_double(state.max - new_max);
  float p[kSplit];
  double weights[kSplit];
  for (int j = 0; j < n; ++j) weights[j] = exp_double(static_cast<double>(seen[j]) * scale - new_max);
  double sum = 0;
  for (int j = 0; j < n; ++j) {
    p[j] = static_cast<float>(weights[j]);
    sum += weights[j];
  }
  float* a = state.partial.data();
  weigh_values(p, &cache.values[(first + skipped) * cache.head_dim], n, cache.head_dim, a);
  for (int i = 0; i < cache.head_dim; ++i) state.sums[i] = state.sums[i] * rescale + a[i];
  state.sum = state.sum * rescale + sum;
  state.max = new_max;
}

}  // namespace nibble::kernels::reference
