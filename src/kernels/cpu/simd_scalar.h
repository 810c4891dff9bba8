// The vocabulary in plain C++: small arrays in loops that a compiler may or may not vectorize. What is noinline would
// otherwise double the time to compile this instruction set.
#pragma once

#include <cstdint>

#include "format/e2m1.h"
#include "format/half.h"
#include "format/portable.h"
#include "kernels/cpu/kernel_table.h"

namespace nibble::kernels::cpu {
namespace {

constexpr int kLanes = 4;
constexpr int kPanelSize = 64 * kLanes;  // int16 of one block of kLanes rows: [2 halves][kLanes rows][32]
constexpr int kPanelVectors = 1;         // of rows and
constexpr int kPanelTokens = 4;          // tokens whose sums are held in registers
constexpr int kGemvTokens = 1;           // that meet a record as it is read
constexpr int kHeadsAtOnce = 2;          // of attention, that meet keys and values as they are read; 2 or 4
constexpr int kPartsAtOnce = 1;          // of a record, for one token
constexpr bool kIsAvx2 = false;

struct F32V {
  float v[kLanes];
};
struct I32V {
  std::int32_t v[kLanes];
};
struct I16x32 {
  std::int16_t v[32];
};
using Partial = std::int32_t;  // one row's dot product

inline F32V f32_set1(float x) {
  return {{x, x, x, x}};
}
inline F32V f32_load(const float* p) {
  F32V out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = p[i];
  return out;
}
inline void f32_store(float* p, F32V a) {
  for (int i = 0; i < kLanes; ++i) p[i] = a.v[i];
}
inline F32V operator+(F32V a, F32V b) {
  for (int i = 0; i < kLanes; ++i) a.v[i] = a.v[i] + b.v[i];
  return a;
}
inline F32V operator*(F32V a, F32V b) {
  for (int i = 0; i < kLanes; ++i) a.v[i] = a.v[i] * b.v[i];
  return a;
}
inline F32V f32_fma(F32V a, F32V b, F32V c) {
  for (int i = 0; i < kLanes; ++i) c.v[i] = format::fma_rn(a.v[i], b.v[i], c.v[i]);
  return c;
}
inline F32V f32_from(I32V a) {
  F32V out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = static_cast<float>(a.v[i]);
  return out;
}
// 2^(byte - 127) per lane.
inline F32V f32_load_pow2(const std::uint8_t* p) {
  F32V out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = format::bits_float(static_cast<format::u32>(p[i]) << 23);
  return out;
}
inline F32V f32_load_f16(const std::uint16_t* p) {
  F32V out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = format::f16_to_f32(p[i]);
  return out;
}
// To the nearest f16, ties to even, and back.
inline F32V f32_round_to_f16(F32V a) {
  for (int i = 0; i < kLanes; ++i) a.v[i] = format::f16_to_f32(format::f32_to_f16(a.v[i]));
  return a;
}

inline I32V i32_zero() {
  return {{0, 0, 0, 0}};
}
inline I32V operator+(I32V a, I32V b) {
  for (int i = 0; i < kLanes; ++i) a.v[i] += b.v[i];
  return a;
}

// x times a power of two that keeps it normal, given as what to add to its exponent; finite and positive if x is zero.
inline F32V f32_raise(F32V x, I32V exponent) {
  for (int i = 0; i < kLanes; ++i) {
    x.v[i] = format::bits_float(format::float_bits(x.v[i]) + static_cast<format::u32>(exponent.v[i]));
  }
  return x;
}
inline I32V operator&(I32V a, I32V b) {
  for (int i = 0; i < kLanes; ++i) a.v[i] &= b.v[i];
  return a;
}
inline I32V i32_times_8(I32V a) {
  for (int i = 0; i < kLanes; ++i) a.v[i] *= 8;
  return a;
}
inline I32V i32_set1(std::int32_t x) {
  return {{x, x, x, x}};
}
// acc + w0 * q0 + w1 * q1 per lane, each lane of w and q being two int16.
inline I32V pair_dot(I32V acc, I32V w, I32V q) {
  for (int r = 0; r < kLanes; ++r) {
    acc.v[r] += static_cast<std::int16_t>(w.v[r]) * static_cast<std::int16_t>(q.v[r]);
    acc.v[r] += (w.v[r] >> 16) * (q.v[r] >> 16);
  }
  return acc;
}
inline I32V pair_set1(const std::int16_t* p) {
  std::int32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return {{pair, pair, pair, pair}};
}
// acc + the four bytes of each lane of w, unsigned and below 64, times quad `quad` of the signed ones at q.
inline I32V quad_dot(I32V acc, I32V w, const std::int8_t* q, int quad) {
  for (int r = 0; r < kLanes; ++r) {
    for (int i = 0; i < 4; ++i) acc.v[r] += (w.v[r] >> (8 * i) & 255) * q[4 * quad + i];
  }
  return acc;
}

// acc + the four bytes of each lane of w, within -127..127, times four of 0..127.
inline I32V weigh_quads(I32V acc, I32V w, const std::int8_t* q) {
  for (int r = 0; r < kLanes; ++r) {
    for (int i = 0; i < 4; ++i) acc.v[r] += static_cast<std::int8_t>(w.v[r] >> (8 * i)) * q[i];
  }
  return acc;
}
inline void i32_store(std::int32_t* p, I32V a) {
  for (int i = 0; i < kLanes; ++i) p[i] = a.v[i];
}

inline I16x32 i16_load(const std::int16_t* p) {
  I16x32 out;
  for (int i = 0; i < 32; ++i) out.v[i] = p[i];
  return out;
}
inline std::int32_t dot_32(const std::int16_t* a, const std::int16_t* b) {
  std::int32_t sum = 0;
  for (int i = 0; i < 32; ++i) sum += a[i] * b[i];
  return sum;
}
inline Partial dot(Partial acc, const I16x32& a, const I16x32& b) {
  return acc + dot_32(a.v, b.v);
}

// --- records: a lane is a row ---

inline I32V i32_load_pairs(const void* p) {
  I32V out;
  __builtin_memcpy(out.v, p, sizeof out.v);
  return out;
}
// Four int8 a row, elements 0, 2, 1, 3, as the pairs 0, 1 and 2, 3.
[[gnu::noinline]] void split_quads(const std::uint8_t* p, I32V& first, I32V& second) {
  const auto pair = [](int low, int high) {
    return static_cast<std::int32_t>((static_cast<std::uint32_t>(low) & 0xFFFF) | static_cast<std::uint32_t>(high)
                                                                                      << 16);
  };
  for (int r = 0; r < kLanes; ++r) {
    const auto at = [&](int j) { return static_cast<std::int8_t>(p[4 * r + j]); };
    first.v[r] = pair(at(0), at(2));
    second.v[r] = pair(at(1), at(3));
  }
}

// --- records of FP8 (linear_fp8.inl): a byte is exponent << 4 | sign << 3 | mantissa ---

inline std::int32_t word_pair(int low, int high) {
  return static_cast<std::int32_t>((static_cast<std::uint32_t>(low) & 0xFFFF) | static_cast<std::uint32_t>(high) << 16);
}
// Four weights a row, as split_quads: those of exponent 4 and more, without the last three bits; zeros for others.
[[gnu::noinline]] void fp8_large(const std::uint8_t* p, I32V& first, I32V& second) {
  const auto weight = [](int byte) {
    const int exponent = byte >> 4, magnitude = (8 + (byte & 7)) << exponent >> kFp8LargeExponent;
    if (exponent < kFp8LargeExponent) return 0;
    return (byte & 8) != 0 ? -magnitude : magnitude;
  };
  for (int r = 0; r < kLanes; ++r, p += 4) {
    first.v[r] = word_pair(weight(p[0]), weight(p[2]));
    second.v[r] = word_pair(weight(p[1]), weight(p[3]));
  }
}
// The weights of smaller exponents, zeros for others.
[[gnu::noinline]] void fp8_small(const std::uint8_t* p, I32V& first, I32V& second) {
  const auto weight = [](int byte) {
    const int exponent = byte >> 4, mantissa = byte & 7;
    if (exponent >= kFp8LargeExponent) return 0;
    const int magnitude = exponent == 0 ? mantissa : (8 + mantissa) << (exponent - 1);
    return (byte & 8) != 0 ? -magnitude : magnitude;
  };
  for (int r = 0; r < kLanes; ++r, p += 4) {
    first.v[r] = word_pair(weight(p[0]), weight(p[2]));
    second.v[r] = word_pair(weight(p[1]), weight(p[3]));
  }
}

// Pair `pair` of all rows to a panel, where rows stay rows, which is what compilers vectorize: [2 halves, kLanes, 32].
inline void store_pairs(std::int16_t* panel, int pair, I32V words) {
  for (int r = 0; r < kLanes; ++r) {
    __builtin_memcpy(panel + 32 * (pair / 16 * kLanes + r) + 2 * (pair % 16), &words.v[r], sizeof words.v[r]);
  }
}
// sums[t] += the first 2 * kPairs elements of each row times the integers of token t at q + 64 t.
template <int kPairs, int kVectors, int kTokens>
inline void dot_panels(const std::int16_t* panels, const std::int16_t* q, I32V (&sums)[kTokens][kVectors]) {
  static_assert(kVectors == 1);
  for (int half = 0; half < kPairs / 16; ++half) {
    for (int t = 0; t < kTokens; ++t) {
      for (int r = 0; r < kLanes; ++r) {
        sums[t][0].v[r] += dot_32(panels + 32 * (half * kLanes + r), q + 64 * t + 32 * half);
      }
    }
  }
}

// --- records of NVFP4 (nvfp4_tiles.h) ---

// Four weights of each row.
struct Quads {
  std::int8_t v[4 * kLanes];
};
[[gnu::noinline]] void decode_quads(const std::uint8_t* p, Quads& low, Quads& high) {
  static constexpr std::int8_t kQ1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  for (int i = 0; i < 4 * kLanes; ++i) {
    low.v[i] = kQ1[p[i] & 15];
    high.v[i] = kQ1[p[i] >> 4];
  }
}

// Sum of a group over one plane.
using PlaneSum = I32V;
inline std::int32_t plane_start(const std::int8_t*) {
  return 0;
}
inline PlaneSum plane_sum(std::int32_t start) {
  return {{start, start, start, start}};
}
[[gnu::noinline]] PlaneSum plane_dot(PlaneSum sum, const Quads& w, const std::int8_t* q, int quad) {
  for (int r = 0; r < kLanes; ++r) {
    for (int i = 0; i < 4; ++i) sum.v[r] += w.v[4 * r + i] * q[4 * quad + i];
  }
  return sum;
}

struct GroupScales {
  std::int16_t group[kGroupsPerBlock][kLanes];
};
[[gnu::noinline]] GroupScales group_scales(const std::uint8_t* p) {
  GroupScales out;
  for (int j = 0; j < kGroupsPerBlock; ++j) {
    for (int r = 0; r < kLanes; ++r) {
      const int scale = p[4 * r + j];
      out.group[kQuadOrder[j]][r] = static_cast<std::int16_t>((8 + (scale & 7)) << (scale >> 3 & 7));
    }
  }
  return out;
}
// Sums of groups times their scales.
struct ScaledSum {
  I32V total;
};
inline void add_scaled(ScaledSum& to, PlaneSum sum, const GroupScales& scales, int group) {
  for (int r = 0; r < kLanes; ++r) to.total.v[r] += sum.v[r] * scales.group[group][r];
}
// The unit of each row, biased, of its four digits: what raises the exponent of a float by it.
inline I32V load_unit(const std::uint8_t* p) {
  I32V out;
  for (int r = 0; r < kLanes; ++r) {
    format::u32 exponent = 0;
    for (int j = 0; j < 4; ++j) exponent += static_cast<format::u32>(p[4 * r + j] >> 6) << (2 * j);
    out.v[r] = static_cast<std::int32_t>(exponent << 23);
  }
  return out;
}

// Codes times the scale of their group as a panel.
inline void fold_record(const std::uint8_t* record, std::int16_t* panel) {
  const GroupScales scales = group_scales(record + kRecordScales);
  for (int line = 0; line < 8; ++line) {
    Quads half[2];
    decode_quads(record + kLineBytes * line, half[0], half[1]);
    std::int16_t* to = panel + line / 4 * 32 * kLanes + line % 4 * 8;
    for (int r = 0; r < kLanes; ++r) {
      for (int i = 0; i < 8; ++i) {  // byte j of a lane holds element kQuadOrder[j] of its half
        const int w = half[i / 4].v[4 * r + i % 4] * scales.group[line / 2][r];
        to[32 * r + i / 4 * 4 + kQuadOrder[i % 4]] = static_cast<std::int16_t>(w);
      }
    }
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu

#include "kernels/cpu/folded_panels.inl"
#include "kernels/cpu/pair_sums.inl"
#include "kernels/cpu/quant_bytes.inl"
