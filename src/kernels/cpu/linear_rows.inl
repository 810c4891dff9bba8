// Rows of other formats: f16 and bf16 as 15-bit integers with a unit per block, Q8_0 in blocks of 32, and plain f32.
#pragma once

namespace nibble::kernels::cpu {
namespace {

class Rows16Format : public FormatOfBlocks {
 public:
  static constexpr int kRecord = kRows16RecordBytes;
  using Units = F32V;

  Rows16Format(const Rows16Weights& weights, int n_blocks) : w_(weights), n_blocks_(n_blocks) {}

  int n_out() const { return w_.n_out; }
  const std::uint8_t* records() const { return reinterpret_cast<const std::uint8_t*>(w_.records); }
  RecordPart part(int row, int block) const { return part_of(*this, row, block, n_blocks_); }

  template <int kTokens, int kStream>
  void sums(const RecordPart* parts, const Activations& in, BlockSums (*out)[kPartsAtOnce]) const {
    keep_apart<kStream>();
    const std::int16_t* q = in.q + static_cast<std::size_t>(parts[0].block) * kTokens * 64;
    constexpr int kChains = kTokens == 1 ? 4 : 2;  // a dot product is waited for
#pragma GCC unroll 4
    for (int p = 0; p < kPartsAtOnce; ++p) {
      I32V sum[kTokens][kChains];
      for (int t = 0; t < kTokens; ++t) {
        for (int i = 0; i < kChains; ++i) sum[t][i] = i32_zero();
      }
#pragma GCC unroll 8
      for (int pair = 0; pair < 32; ++pair) {
        parts[p].template prefetch<1>(pair);
        const I32V w = i32_load_pairs(parts[p].line(pair));
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          I32V& to = sum[t][pair % kChains];
          to = pair_dot(to, w, pair_set1(q + 64 * t + 2 * pair));
        }
      }
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        I32V total = sum[t][0] + sum[t][1];
        if constexpr (kChains == 4) total = total + (sum[t][2] + sum[t][3]);
        out[t][p] = {total, i32_zero()};
      }
    }
  }
  void pack(const RecordPart& part, std::int16_t* panel) const {
    for (int pair = 0; pair < 32; ++pair) {
      part.prefetch<1>(pair);
      store_pairs(panel, pair, i32_load_pairs(part.line(pair)));
    }
  }
  F32V units(const RecordPart& part) const {
    return f32_load_pow2(w_.unit + (static_cast<std::size_t>(part.tile) * n_blocks_ + part.block) * kTileRows +
                         part.row);
  }
  F32V step(F32V acc, I32V sum, int /* half */, F32V units, const float* d) const {
    return f32_fma(f32_from(sum), f32_set1(*d) * units, acc);
  }

 private:
  const Rows16Weights& w_;
  int n_blocks_;
};

void linear_rows16(const Rows16Weights& w, const Activations& in, const LinearJob& job) {
  linear(Rows16Format(w, in.n_blocks), in, job);
}

// The smallest exponent >= -52 such that max / 2^u rounds to at most 16383. max / 2^u lies in [8192, 16384), or below.
inline int unit_exponent(float max) {
  int u = static_cast<int>(format::float_bits(max) >> 23) - 127 - 13;
  u = u < format::nc1::kRowUnitMin ? format::nc1::kRowUnitMin : u;
  return format::rne(max, format::pow2(-u)) > format::nc1::kRowMax ? u + 1 : u;
}

inline float widen_f16(std::uint16_t half) {
  return format::f16_to_f32(half);
}
inline float widen_bf16(std::uint16_t half) {
  return format::bf16_to_f32(half);
}

template <float (*kWiden)(std::uint16_t)>
inline bool pack_rows16(const std::uint16_t* rows, int n_rows, int n_in, std::int16_t* records, std::uint8_t* unit) {
  for (int begin = 0; begin < n_in; begin += 64, records += 32 * 2 * kTileRows, unit += kTileRows) {
    const int width = n_in - begin < 64 ? n_in - begin : 64;
    for (int r = 0; r < n_rows; ++r) {
      const std::uint16_t* row = rows + static_cast<std::size_t>(r) * n_in + begin;
      float w[64] = {};
      for (int i = 0; i < width; ++i) w[i] = kWiden(row[i]);
      const std::uint32_t largest = max_abs_bits(w, 64);
      if (largest >= 0x7F800000U) return true;
      const int u = unit_exponent(format::bits_float(largest));
      const float inverse = format::pow2(-u);
      std::uint32_t integers[64];
      // A product with a power of two is exact, so adding 1.5 * 2^23 rounds once and leaves the integer in the last
      // places.
      for (int i = 0; i < 64; ++i) integers[i] = format::float_bits(w[i] * inverse + 12582912.0F) - 0x4B400000U;
      for (int pair = 0; pair < 32; ++pair) {
        const std::uint32_t both = (integers[2 * pair] & 0xFFFF) | integers[2 * pair + 1] << 16;
        __builtin_memcpy(records + 2 * (pair * kTileRows + r), &both, sizeof both);
      }
      unit[r] = static_cast<std::uint8_t>(127 + u);
    }
  }
  return false;
}

bool pack_f16(const std::uint16_t* rows, int n_rows, int n_in, std::int16_t* records, std::uint8_t* unit) {
  return pack_rows16<widen_f16>(rows, n_rows, n_in, records, unit);
}
bool pack_bf16(const std::uint16_t* rows, int n_rows, int n_in, std::int16_t* records, std::uint8_t* unit) {
  return pack_rows16<widen_bf16>(rows, n_rows, n_in, records, unit);
}

class Q8Format : public FormatOfBlocks {
 public:
  static constexpr bool kHalves = true;  // two blocks of 32 meet one block of activations
  static constexpr int kRecord = kQ8RecordBytes;
  struct Units {
    F32V first, second;
  };

  Q8Format(const Q8Weights& weights, int n_blocks) : w_(weights), n_blocks_(n_blocks) {}

  int n_out() const { return w_.n_out; }
  const std::uint8_t* records() const { return w_.records; }
  RecordPart part(int row, int block) const { return part_of(*this, row, block, n_blocks_); }

  template <int kTokens, int kStream>
  void sums(const RecordPart* parts, const Activations& in, BlockSums (*out)[kPartsAtOnce]) const {
    keep_apart<kStream>();
    const std::int16_t* q = in.q + static_cast<std::size_t>(parts[0].block) * kTokens * 64;
#pragma GCC unroll 4
    for (int p = 0; p < kPartsAtOnce; ++p) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        I32V sum[kTokens][2];
        for (int t = 0; t < kTokens; ++t) sum[t][0] = sum[t][1] = i32_zero();
#pragma GCC unroll 8
        for (int line = 8 * half; line < 8 * half + 8; ++line) {
          parts[p].template prefetch<1>(line);
          I32V first, second;
          split_quads(parts[p].line(line), first, second);
#pragma GCC unroll 4
          for (int t = 0; t < kTokens; ++t) {
            sum[t][0] = pair_dot(sum[t][0], first, pair_set1(q + 64 * t + 4 * line));
            sum[t][1] = pair_dot(sum[t][1], second, pair_set1(q + 64 * t + 4 * line + 2));
          }
        }
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) (half == 0 ? out[t][p].first : out[t][p].second) = sum[t][0] + sum[t][1];
      }
    }
  }
  void pack(const RecordPart& part, std::int16_t* panel) const {
    for (int line = 0; line < 16; ++line) {
      part.prefetch<1>(line);
      I32V first, second;
      split_quads(part.line(line), first, second);
      store_pairs(panel, 2 * line, first);
      store_pairs(panel, 2 * line + 1, second);
    }
  }
  // A second half that the tensor does not have has a scale of zero, with which a step changes nothing.
  Units units(const RecordPart& part) const {
    const auto* scales = reinterpret_cast<const std::uint16_t*>(part.record + kQ8RecordScales) + part.row;
    return {f32_load_f16(scales), f32_load_f16(scales + kTileRows)};
  }
  F32V step(F32V acc, I32V sum, int half, const Units& units, const float* d) const {
    return f32_fma(f32_from(sum), f32_set1(*d) * (half == 0 ? units.first : units.second), acc);
  }

 private:
  const Q8Weights& w_;
  int n_blocks_;
};

void linear_q8_0(const Q8Weights& w, const Activations& in, const LinearJob& job) {
  linear(Q8Format(w, in.n_blocks), in, job);
}

void linear_f32(const F32Weights& w, const Activations& in, const LinearJob& job) {
  for (int row = job.row_begin; row < job.row_end; ++row) {
    for (int token = 0; token < in.n_rows; ++token) {
      const float sum = reduce_products(w.values + static_cast<std::size_t>(row) * w.n_in,
                                        in.x + static_cast<std::size_t>(token) * w.n_in, w.n_in);
      job.out[static_cast<std::size_t>(token) * w.n_out + row] = job.bias != nullptr ? sum + job.bias[row] : sum;
    }
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu
