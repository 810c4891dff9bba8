// NVFP4 from records (nvfp4_tiles.h).
//
//   one token:      codes meet two planes of 8 bits in byte dot products, and the sums of each group its scale
//   several tokens: codes times scales are a panel of int16. |q1 * scale| <= 12 * 1920, and a block's sum stays below
//                   64 * 12 * 1920 * 1023 < 2^31, so int32 is exact in any order
#pragma once

namespace nibble::kernels::cpu {
namespace {

// Activations::d are those of the contract times g / 8 (scale_tokens).
// kWide: of tiles that have a block whose scales span more than seven octaves. Such a block, one in 100,000 of a real
// model, is summed in 64 bits from the file's bytes.
constexpr float kUnitScale = 1 << kUnitBias;

template <bool kWide>
class Nvfp4Format {
 public:
  static constexpr bool kHalves = false;
  static constexpr bool kHasExceptions = kWide;
  static constexpr int kRecord = kRecordBytes;
  using Units = I32V;

  Nvfp4Format(const Nvfp4Weights& weights, int n_blocks) : w_(weights), n_blocks_(n_blocks) {}

  int n_out() const { return w_.n_out; }
  const std::uint8_t* records() const { return w_.records; }
  RecordPart part(int row, int block) const { return part_of(*this, row, block, n_blocks_); }

  // Parts of a record together, as they meet the same activations, and a group for all tokens. noinline, because gcc 12
  // keeps the sums in memory where it inlines this: 24 GB/s instead of 40.
  template <int kTokens>
  [[gnu::noinline]] void sums(const RecordPart* parts, const Activations& in, BlockSums (*out)[kPartsAtOnce]) const {
    parts[0].template prefetch<kRecord / kLineBytes>(0);
    const PlaneBlock* planes = in.planes + static_cast<std::size_t>(parts[0].block) * kTokens;
    GroupScales scales[kPartsAtOnce];
    ScaledSum high[kTokens][kPartsAtOnce] = {}, low[kTokens][kPartsAtOnce] = {};
#pragma GCC unroll 4
    for (int p = 0; p < kPartsAtOnce; ++p) scales[p] = group_scales(parts[p].line(8));
#pragma GCC unroll 4
    for (int g = 0; g < kGroupsPerBlock; ++g) {
      Quads w[4][kPartsAtOnce];
#pragma GCC unroll 4
      for (int p = 0; p < kPartsAtOnce; ++p) {
        decode_quads(parts[p].line(2 * g), w[0][p], w[1][p]);
        decode_quads(parts[p].line(2 * g + 1), w[2][p], w[3][p]);
      }
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        add_group(high[t], w, planes[t].high, planes[t].high_start[g], scales, g);
        add_group(low[t], w, planes[t].low, planes[t].low_start[g], scales, g);
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int p = 0; p < kPartsAtOnce; ++p) {
        out[t][p] = {i32_times_8(high[t][p].total) + low[t][p].total, i32_zero()};
      }
    }
  }
  void pack(const RecordPart& part, std::int16_t* panel) const {
    part.prefetch<kRecord / kLineBytes>(0);
    fold_record(part.line(0), panel);
  }
  I32V units(const RecordPart& part) const {
    return load_unit(part.line(8));
  }
  // f32(S) is the rounded integer times a power of two, which c takes: it is one addition to its exponent. A c of zero
  // may become anything finite, as its sums are zero. Where c could leave the range of floats (kWide), S takes it.
  F32V step(F32V acc, I32V sum, int /* half */, I32V units, const float* c) const {
    if constexpr (kWide) return f32_fma(f32_from(sum) * f32_raise(f32_set1(1.0F), units), f32_set1(*c), acc);
    return f32_fma(f32_from(sum), f32_raise(f32_set1(*c), units), acc);
  }

  static bool is_exception(const RecordPart& part) {
    std::uint32_t first_row;
    __builtin_memcpy(&first_row, part.record + kRecordScales, sizeof first_row);
    return first_row == kWideMark * 0x01010101U;
  }
  // One block of kLanes rows for all tokens; acc is [n_rows, kLanes].
  void step_exception(const RecordPart& part, const Activations& in, float* acc) const {
    for (int r = 0; r < kLanes; ++r) {
      const int row = part.tile * kTileRows + part.row + r;
      if (row < w_.n_out) step_row(row, part.block, in, acc + r);
    }
  }

 private:
  static void add_group(ScaledSum* to, const Quads (*w)[kPartsAtOnce], const std::int8_t* plane, std::int32_t start,
                        const GroupScales* scales, int g) {
    PlaneSum sum[kPartsAtOnce];
#pragma GCC unroll 4
    for (int p = 0; p < kPartsAtOnce; ++p) sum[p] = plane_sum(start);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
      for (int p = 0; p < kPartsAtOnce; ++p) sum[p] = plane_dot(sum[p], w[i][p], plane + 16 * g + 4 * i);
    }
#pragma GCC unroll 4
    for (int p = 0; p < kPartsAtOnce; ++p) add_scaled(to[p], sum[p], scales[p], g);
  }

  void step_row(int row, int block, const Activations& in, float* acc /* [n_rows], kLanes apart */) const {
    const std::size_t groups = static_cast<std::size_t>(row) * (w_.n_in / 16) + 4 * static_cast<std::size_t>(block);
    const int width = w_.n_in - 64 * block < 64 ? w_.n_in - 64 * block : 64;
    std::int16_t codes[64] = {};
    std::int64_t scales[kGroupsPerBlock] = {};
    for (int i = 0; i < width; ++i) {
      codes[i] = static_cast<std::int16_t>(format::e2m1_x2(format::nvfp4_code(w_.codes[8 * groups + i / 2], i)));
    }
    for (int g = 0; g < width / 16; ++g) scales[g] = format::e4m3_x512(w_.scales[groups + g]);
    for (int token = 0; token < in.n_rows; ++token) {
      const std::size_t at = static_cast<std::size_t>(block) * in.n_rows + token;
      std::int64_t sum = 0;
      for (int g = 0; g < kGroupsPerBlock; ++g) {
        std::int32_t group_sum = 0;
        for (int i = 16 * g; i < 16 * g + 16; ++i) group_sum += codes[i] * in.q[64 * at + i];
        sum += scales[g] * group_sum;
      }
      float& lane = acc[static_cast<std::size_t>(token) * kLanes];
      lane = format::fma_rn(static_cast<float>(sum), in.d[at] * kUnitScale, lane);
    }
  }

  const Nvfp4Weights& w_;
  int n_blocks_;
};

// c of every token and block, divided by 2^kUnitBias. Returns whether each can take the unit of a record.
inline bool scale_tokens(const Activations& in, float g, float* c) {
  const int n = in.n_blocks * in.n_rows;
  for (int i = 0; i < n; ++i) c[i] = in.d[i] * g * (1.0F / kUnitScale);  // normal: d is 0 or >= 2^-50, g >= 2^-52
  return max_abs_bits(c, n) < format::float_bits(0x1p100F);
}

void linear_nvfp4(const Nvfp4Weights& w, const Activations& activations, const LinearJob& job) {
  Activations in = activations;
  float* const c = job.scratch + static_cast<std::size_t>(in.n_rows) * kGemmRows;
  const bool is_narrow = scale_tokens(activations, w.g, c);
  in.d = c;
  int row = job.row_begin;
  while (row < job.row_end) {  // runs of tiles of one kind
    const std::uint8_t wide = w.is_wide[row / kTileRows];
    int end = row;
    while (end < job.row_end && w.is_wide[end / kTileRows] == wide) end += kTileRows;
    LinearJob run = job;
    run.row_begin = row;
    run.row_end = end < job.row_end ? end : job.row_end;
    if (wide != 0 || !is_narrow) {
      linear(Nvfp4Format<true>(w, in.n_blocks), in, run);
    } else {
      linear(Nvfp4Format<false>(w, in.n_blocks), in, run);
    }
    row = end;
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu
