// Rows of other formats: f16 and bf16 as 15-bit integers with a unit per block, Q8_0 in blocks of 32, and plain f32.
#pragma once

namespace nibble::kernels::cpu {
namespace {

enum class Half { kF16, kBF16 };

// w_q = rne(w * 2^-u) is made here, block by block, so that a head needs no memory but its file.
template <Half kHalf>
class Rows16Format {
 public:
  static constexpr bool kHalves = false;
  using Units = F32V;

  Rows16Format(const Rows16Weights& weights, int n_blocks) : w_(weights), n_blocks_(n_blocks) {}

  int n_out() const { return w_.n_out; }

  void select(int row, int n_vectors) {
    for (int r = 0; r < n_vectors * kLanes; ++r) {
      values_[r] = w_.values + static_cast<std::size_t>(row_at(*this, row + r)) * w_.n_in;
    }
    row_ = row;
  }

  template <bool kWhole>
  void decode(int r, int block, I16x32& first, I16x32& second) const {
    const std::uint16_t* values = values_[r] + 64 * block;
    std::uint16_t padded[64];
    if constexpr (!kWhole) {
      const int width = w_.n_in - 64 * block;
      for (int i = 0; i < 64; ++i) padded[i] = i < width ? values[i] : 0;
      values = padded;
    }
    // 2^-u: the exponent mirrored at the bias. Stored exponents lie in [75, 241].
    const float inverse = format::bits_float((254U - *unit(row_at(*this, row_ + r), block)) << 23);
    if constexpr (kHalf == Half::kF16) {
      first = i16_from_f16(values, inverse);
      second = i16_from_f16(values + 32, inverse);
    } else {
      first = i16_from_bf16(values, inverse);
      second = i16_from_bf16(values + 32, inverse);
    }
  }

  void pack(int vector, int block, std::int16_t* panel) const {
    pack_decoded_rows(*this, vector, block, 64 * (block + 1) <= w_.n_in, panel);
  }
  F32V units(int vector, int block) const { return f32_load_pow2(unit(row_ + vector * kLanes, block)); }
  F32V step(F32V acc, const BlockSums& sums, F32V units, const float* d) const {
    return f32_fma(f32_from(sums.first), f32_set1(*d) * units, acc);
  }

 private:
  const std::uint8_t* unit(int row, int block) const {
    return w_.unit + (static_cast<std::size_t>(row / kTileRows) * n_blocks_ + block) * kTileRows + row % kTileRows;
  }

  const Rows16Weights& w_;
  int n_blocks_;
  int row_ = 0;
  const std::uint16_t* values_[kPanelVectors * kLanes];
};

void linear_f16(const Rows16Weights& w, const Activations& in, const LinearJob& job) {
  linear(Rows16Format<Half::kF16>(w, in.n_blocks), in, job);
}
void linear_bf16(const Rows16Weights& w, const Activations& in, const LinearJob& job) {
  linear(Rows16Format<Half::kBF16>(w, in.n_blocks), in, job);
}

class Q8Format {
 public:
  static constexpr bool kHalves = true;  // two blocks of 32 meet one block of activations
  struct Units {
    F32V first, second;
  };

  explicit Q8Format(const Q8Weights& weights) : w_(weights), n_blocks_(weights.n_in / 32) {}

  int n_out() const { return w_.n_out; }

  void select(int row, int n_vectors) {
    for (int r = 0; r < n_vectors * kLanes; ++r) {
      blocks_[r] = w_.blocks + static_cast<std::size_t>(row_at(*this, row + r)) * n_blocks_ * 34;
    }
    row_ = row;
  }

  template <bool kWhole>
  void decode(int r, int block, I16x32& first, I16x32& second) const {
    const std::uint8_t* source = blocks_[r] + static_cast<std::size_t>(block) * 68 + 2;
    first = i16_from_i8(reinterpret_cast<const std::int8_t*>(source));
    second = kWhole ? i16_from_i8(reinterpret_cast<const std::int8_t*>(source + 34)) : I16x32{};
  }

  void pack(int vector, int block, std::int16_t* panel) const {
    pack_decoded_rows(*this, vector, block, 64 * (block + 1) <= w_.n_in, panel);
  }
  // A half that is beyond the last block has a scale of zero, with which a step changes nothing: fma(0, 0, acc).
  Units units(int vector, int block) const {
    const int row = row_ + vector * kLanes;
    const std::uint16_t* scales =
        w_.scales + (static_cast<std::size_t>(row / kTileRows) * n_blocks_ + 2 * block) * kTileRows + row % kTileRows;
    return {f32_load_f16(scales), 2 * block + 1 < n_blocks_ ? f32_load_f16(scales + kTileRows) : f32_set1(0.0F)};
  }
  F32V step(F32V acc, const BlockSums& sums, const Units& units, const float* d) const {
    acc = f32_fma(f32_from(sums.first), f32_set1(*d) * units.first, acc);
    return f32_fma(f32_from(sums.second), f32_set1(*d) * units.second, acc);
  }

 private:
  const Q8Weights& w_;
  int n_blocks_;
  int row_ = 0;
  const std::uint8_t* blocks_[kPanelVectors * kLanes];
};

void linear_q8_0(const Q8Weights& w, const Activations& in, const LinearJob& job) {
  linear(Q8Format(w), in, job);
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
