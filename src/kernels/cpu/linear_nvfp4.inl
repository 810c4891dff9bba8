// NVFP4 rows: codes straight from the file, times the prepared int16 scales. |q1 * scale_q| <= 12 * 1920, and a block's
// sum stays below 64 * 12 * 1920 * 1023 < 2^31, so int32 is exact in any order.
#pragma once

namespace nibble::kernels::cpu {
namespace {

constexpr int kGroupsPerBlock = 4;

class Nvfp4Format {
 public:
  static constexpr bool kHalves = false;

  Nvfp4Format(const Nvfp4Weights& weights, int n_blocks) : w_(weights), n_blocks_(n_blocks) {}

  int n_out() const { return w_.n_out; }
  static const std::int16_t* activations(const Activations& in) { return in.q_split; }

  void select(int row) {
    for (int r = 0; r < kLanes; ++r) {
      const std::size_t source = static_cast<std::size_t>(row_at(*this, row + r));
      codes_[r] = w_.codes + source * (w_.n_in / 2);
      scales_[r] = w_.scale_q + source * n_blocks_ * kGroupsPerBlock;
    }
    unit_ = w_.unit + static_cast<std::size_t>(row / kTileRows) * n_blocks_ * kTileRows + row % kTileRows;
  }

  template <bool kWhole>
  void decode(int r, int block, I16x32& even, I16x32& odd) const {
    const std::uint8_t* codes = codes_[r] + 32 * block;
    // A stream per lane is more than a hardware prefetcher follows: one core read 12 GB/s of weights without these, 18
    // with them, 13 from twice as far ahead (AVX-512, 14336 x 4096 from memory, in turn on one busy machine).
    __builtin_prefetch(codes + 256);
    if (block % 8 == 0) __builtin_prefetch(scales_[r] + kGroupsPerBlock * block + 64);
    std::uint8_t padded[32];
    if constexpr (!kWhole) {
      const int n_bytes = (w_.n_in - 64 * block) / 2;
      for (int i = 0; i < 32; ++i) padded[i] = i < n_bytes ? codes[i] : 0;
      codes = padded;
    }
    decode_codes(codes, even, odd);
    const I16x32 scales = expand_scales(scales_[r] + kGroupsPerBlock * block);
    even = even * scales;
    odd = odd * scales;
  }

  // f32(S) is the rounded integer times a power of two, which is exact.
  F32V step(F32V acc, const BlockSums& sums, int block, float d) const {
    const F32V s = f32_from(sums.first) * f32_load_pow2(unit_ + static_cast<std::size_t>(block) * kTileRows);
    return f32_fma(s, f32_set1(d * w_.g), acc);
  }

 private:
  const Nvfp4Weights& w_;
  int n_blocks_;
  const std::uint8_t* codes_[kLanes];
  const std::int16_t* scales_[kLanes];
  const std::uint8_t* unit_ = nullptr;
};

// A tile that has a block whose scales span more than seven octaves: the contract's sum in 64 bits, element by element.
inline void linear_nvfp4_wide(const Nvfp4Weights& w, const Activations& in, const LinearJob& job) {
  for (int row = job.row_begin; row < job.row_end; ++row) {
    const std::uint8_t* codes = w.codes + static_cast<std::size_t>(row) * (w.n_in / 2);
    const std::uint8_t* scales = w.scales + static_cast<std::size_t>(row) * (w.n_in / 16);
    for (int token = 0; token < in.n_rows; ++token) {
      float acc = 0.0F;
      for (int block = 0; block < in.n_blocks; ++block) {
        const std::size_t at = static_cast<std::size_t>(block) * in.n_rows + token;
        const std::int16_t* q = in.q + at * 64;
        const int width = w.n_in - 64 * block < 64 ? w.n_in - 64 * block : 64;
        std::int64_t sum = 0;
        for (int i = 0; i < width; ++i) {
          const int element = 64 * block + i;
          const int code = format::e2m1_x2(format::nvfp4_code(codes[element / 2], element));
          sum += static_cast<std::int64_t>(format::e4m3_x512(scales[element / 16])) * (code * q[i]);
        }
        acc = format::fma_rn(static_cast<float>(sum), in.d[at] * w.g, acc);
      }
      float* out = job.out + static_cast<std::size_t>(token) * w.n_out + row;
      *out = job.bias != nullptr ? acc + job.bias[row] : acc;
    }
  }
}

void linear_nvfp4(const Nvfp4Weights& w, const Activations& in, const LinearJob& job) {
  int row = job.row_begin;
  while (row < job.row_end) {  // runs of tiles of one kind
    const std::uint8_t wide = w.is_wide[row / kTileRows];
    int end = row;
    while (end < job.row_end && w.is_wide[end / kTileRows] == wide) end += kTileRows;
    LinearJob run = job;
    run.row_begin = row;
    run.row_end = end < job.row_end ? end : job.row_end;
    if (wide != 0) {
      linear_nvfp4_wide(w, in, run);
    } else {
      linear(Nvfp4Format(w, in.n_blocks), in, run);
    }
    row = end;
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu
