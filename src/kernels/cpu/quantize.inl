// Quantization to the contract's integers (sections 3, 7 and 11).
#pragma once

namespace nibble::kernels::cpu {
namespace {

// The largest magnitude as bits without sign: order is kept, and non-finite values are the largest.
inline std::uint32_t max_abs_bits(const float* x, int n) {
  std::int32_t largest = 0;
  for (int i = 0; i < n; ++i) {
    const std::int32_t bits = static_cast<std::int32_t>(format::abs_bits(x[i]));
    largest = bits > largest ? bits : largest;
  }
  return static_cast<std::uint32_t>(largest);
}

struct Quantization {
  float inverse;  // integers are rne(x, inverse)
  float scale;    // and stand for integer * scale
  bool is_nonfinite;
};

// Below 2^-40 everything is zero. Where a value is not finite there are no integers: zeros, of a scale that is NaN.
inline Quantization quantization_of(const float* x, int n, int q_max) {
  const std::uint32_t bits = max_abs_bits(x, n);
  const float m = format::bits_float(bits);
  if (bits >= 0x7F800000U) return {0.0F, format::bits_float(0x7FC00000U), true};
  if (m < format::nc1::kTiny) return {0.0F, 0.0F, false};
  return {static_cast<float>(q_max) / m, m / static_cast<float>(q_max), false};
}

template <class Integer>
inline void quantize(const float* x, int n, const Quantization& by, Integer* q) {
  if (by.inverse == 0.0F) {
    for (int i = 0; i < n; ++i) q[i] = 0;
    return;
  }
  for (int i = 0; i < n; ++i) q[i] = static_cast<Integer>(format::rne(x[i], by.inverse));
}

inline std::int32_t plane_words(const std::int8_t* plane) {
  std::int16_t words[2] = {};
  for (int i = 0; i < 16; ++i) words[i % 4 / 2] += plane[i];
  std::int32_t both = 0;
  __builtin_memcpy(&both, words, sizeof both);
  return both;
}

inline void split_planes(const std::int16_t* q, PlaneBlock& planes) {
  for (int i = 0; i < 64; i += 4) {
    for (int j = 0; j < 4; ++j) {
      const std::int16_t value = q[i + kQuadOrder[j]];
      planes.high[i + j] = static_cast<std::int8_t>(value / 8);
      planes.low[i + j] = static_cast<std::int8_t>(value % 8);
    }
  }
  for (int g = 0; g < kGroupsPerBlock; ++g) {
    planes.high_start[g] = plane_start(planes.high + 16 * g);
    planes.low_start[g] = plane_start(planes.low + 16 * g);
    if constexpr (kWantsPlaneWords) {
      planes.high_words[g] = plane_words(planes.high + 16 * g);
      planes.low_words[g] = plane_words(planes.low + 16 * g);
    }
  }
}

bool quantize_a11(const float* x, int n_in, std::size_t stride, std::int16_t* q, PlaneBlock* planes, float* d) {
  bool is_nonfinite = false;
  for (int begin = 0; begin < n_in; begin += 64) {
    const int width = n_in - begin < 64 ? n_in - begin : 64;
    const Quantization by = quantization_of(x + begin, width, format::nc1::kActivationMax);
    quantize(x + begin, width, by, q);
    for (int i = width; i < 64; ++i) q[i] = 0;
    if (planes != nullptr) {
      split_planes(q, *planes);
      planes += stride / 64;
    }
    *d = by.scale;
    is_nonfinite |= by.is_nonfinite;
    q += stride;
    d += stride / 64;
  }
  return is_nonfinite;
}

// Section 11, of at most 256 values. Rounded to f16 first; the first of the largest magnitudes decides the sign of d.
inline bool quantize_super_block(const float* x, int n, std::int16_t* q /* [n] */, float& d) {
  float halves[4 * 64];
  int rounded = 0;
  for (; rounded + kLanes <= n; rounded += kLanes) {
    f32_store(halves + rounded, f32_round_to_f16(f32_load(x + rounded)));
  }
  for (; rounded < n; ++rounded) halves[rounded] = format::f16_to_f32(format::f32_to_f16(x[rounded]));
  const std::uint32_t largest = max_abs_bits(halves, n);
  for (int i = 0; i < n; ++i) q[i] = 0;
  d = largest >= 0x7F800000U ? format::bits_float(0x7FC00000U) : 0.0F;
  if (largest == 0 || largest >= 0x7F800000U) return largest != 0;
  int first = 0;
  while (format::abs_bits(halves[first]) != largest) ++first;
  const float inverse = -127.0F / halves[first];
  for (int i = 0; i < n; ++i) q[i] = static_cast<std::int16_t>(format::rne(halves[i], inverse));
  d = 1.0F / inverse;
  return false;
}

inline void take_plane(const std::int16_t* q, PlaneBlock& planes) {
  for (int i = 0; i < 64; i += 4) {
    for (int j = 0; j < 4; ++j) planes.high[i + j] = static_cast<std::int8_t>(q[i + kQuadOrder[j]]);
  }
  for (int g = 0; g < kGroupsPerBlock; ++g) planes.high_start[g] = plane_start(planes.high + 16 * g);
}

bool quantize_a16q8(const float* x, int n_in, std::size_t stride, std::int16_t* q, PlaneBlock* planes, float* d) {
  bool is_nonfinite = false;
  for (int begin = 0; begin < n_in; begin += 256) {
    const int width = n_in - begin < 256 ? n_in - begin : 256;
    std::int16_t integers[256] = {};
    float step = 0;
    is_nonfinite |= quantize_super_block(x + begin, width, integers, step);
    for (int at = 0; at < width; at += 64) {
      __builtin_memcpy(q, integers + at, 64 * sizeof *q);
      if (planes != nullptr) {
        take_plane(q, *planes);
        planes += stride / 64;
      }
      *d = step;
      q += stride;
      d += stride / 64;
    }
  }
  return is_nonfinite;
}

}  // namespace
}  // namespace nibble::kernels::cpu
