// NVFP4 from records (nvfp4_tiles.h).
//
//   one token:      codes meet two planes of 8 bits in byte dot products, and the sums of each group its scale
//   several tokens: codes times scales are a panel of int16. |q1 * scale| <= 12 * 1920, and a block's sum stays below
//                   64 * 12 * 1920 * 1023 < 2^31, so int32 is exact in any order; so does that of a super-block of
//                   a16q8, 256 * 12 * 1920 * 127. Some instruction sets have panels of codes (Nvfp4Panels)
#pragma once

namespace nibble::kernels::cpu {
namespace {

constexpr float kUnitScale = 1 << kUnitBias;

// What the formats of activations differ in: the blocks of a step, the planes of an integer, and what a sum becomes, be
// it the integers of a record and its units, or f32(S) as it is. Contracts nc1 and nk1:
struct A11Steps {
  static constexpr int kBlocks = 1;
  static constexpr int kPlanes = 2;

  // Makes d the c of every token and block, divided by 2^kUnitBias. Returns whether each can take the unit of a record.
  static bool prepare(const Nvfp4Weights& w, Activations& in, float* c) {
    const int n = in.n_blocks * in.n_rows;
    // Normal: d is 0 or >= 2^-50, g >= 2^-52.
    for (int i = 0; i < n; ++i) c[i] = in.d[i] * w.g * (1.0F / kUnitScale);
    in.d = c;
    return max_abs_bits(c, n) < format::float_bits(0x1p100F);
  }
  // f32(S) is the rounded integer times a power of two, which c takes: it is one addition to its exponent. A c of zero
  // may become anything finite, as its sums are zero. Where c could leave the range of floats (kWide), S takes it.
  template <bool kWide>
  static F32V step(F32V acc, I32V sum, I32V units, float c, const Nvfp4Weights&) {
    if constexpr (kWide) return f32_fma(f32_from(sum) * f32_raise(f32_set1(1.0F), units), f32_set1(c), acc);
    return f32_fma(f32_from(sum), f32_raise(f32_set1(c), units), acc);
  }
  static F32V step_whole(F32V acc, F32V sum, float c, const Nvfp4Weights&) {
    return f32_fma(sum, f32_set1(c * kUnitScale), acc);
  }
  static F32V finish(F32V acc) { return acc; }
};

// Contract nc1-f16. An fma that adds zero is a product, but for the sign of a zero, which acc does not notice.
struct A16Q8Steps {
  static constexpr int kBlocks = 4;
  static constexpr int kPlanes = 1;

  static bool prepare(const Nvfp4Weights&, Activations&, float*) { return true; }
  // d is 0 or between 2^-31 and 2^10, so that powers of two may go into it.
  template <bool kWide>
  static F32V step(F32V acc, I32V sum, I32V units, float d, const Nvfp4Weights& w) {
    const F32V t = f32_from(sum) * f32_raise(f32_set1(d * (0x1p-10F / kUnitScale)), units);
    return f32_fma(f32_set1(1.0F), t * f32_set1(w.tensor_scale), acc);
  }
  static F32V step_whole(F32V acc, F32V sum, float d, const Nvfp4Weights& w) {
    return f32_fma(f32_set1(1.0F), sum * f32_set1(d * 0x1p-10F) * f32_set1(w.tensor_scale), acc);
  }
  static F32V finish(F32V acc) { return f32_round_to_f16(acc); }
};

// One row over the blocks of a step, as the file has it; zeros where there is no row.
template <int kBlocks>
struct WideRow {
  std::int16_t codes[64 * kBlocks] = {};
  std::int32_t scales[kGroupsPerBlock * kBlocks] = {};

  void load(const Nvfp4Weights& w, int row, int first, int end) {
    const std::size_t groups = static_cast<std::size_t>(row) * (w.n_in / 16) + 4 * static_cast<std::size_t>(first);
    const int width = (64 * end < w.n_in ? 64 * end : w.n_in) - 64 * first;
    for (int i = 0; i < width; ++i) {
      codes[i] = static_cast<std::int16_t>(format::e2m1_x2(format::nvfp4_code(w.codes[8 * groups + i / 2], i)));
    }
    for (int g = 0; g < width / 16; ++g) scales[g] = format::e4m3_x512(w.scales[groups + g]);
  }
  std::int64_t dot(const Activations& in, int token, int first, int end) const {
    std::int64_t sum = 0;
    for (int block = first; block < end; ++block) {
      const std::int16_t* q = in.q + 64 * (static_cast<std::size_t>(block) * in.n_rows + token);
      const std::int16_t* w = codes + 64 * (block - first);
      for (int g = 0; g < kGroupsPerBlock; ++g) {
        std::int32_t group_sum = 0;
        for (int i = 16 * g; i < 16 * g + 16; ++i) group_sum += w[i] * q[i];
        sum += std::int64_t{scales[kGroupsPerBlock * (block - first) + g]} * group_sum;
      }
    }
    return sum;
  }
};

// kWide: of tiles that have a block (of a16q8 a super-block) whose scales span more than seven octaves. It, one in
// 100,000 of a real model, is summed in 64 bits from the file's bytes.
template <class Steps, bool kWide>
class Nvfp4Format : public FormatOfBlocks {
 public:
  static constexpr int kBlocksPerStep = Steps::kBlocks;
  static constexpr bool kHasExceptions = kWide;
  static constexpr int kRecord = kRecordBytes;
  using Units = I32V;
  static F32V finish(F32V acc) { return Steps::finish(acc); }

  Nvfp4Format(const Nvfp4Weights& weights, int n_blocks) : w_(weights), n_blocks_(n_blocks) {}

  int n_out() const { return w_.n_out; }
  const std::uint8_t* records() const { return w_.records; }
  RecordPart part(int row, int block) const { return part_of(*this, row, block, n_blocks_); }

  // Parts of a record together, as they meet the same activations, and a group for all tokens. noinline, because gcc 12
  // keeps the sums in memory where it inlines this: 24 GB/s instead of 40.
  template <int kTokens, int kStream>
  [[gnu::noinline]] void sums(const RecordPart* parts, const Activations& in, BlockSums (*out)[kPartsAtOnce]) const {
    keep_apart<kStream>();
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
        if constexpr (Steps::kPlanes == 2) add_group(low[t], w, planes[t].low, planes[t].low_start[g], scales, g);
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int p = 0; p < kPartsAtOnce; ++p) {
        out[t][p] = {high[t][p].total, i32_zero()};
        if constexpr (Steps::kPlanes == 2) out[t][p].first = i32_times_8(high[t][p].total) + low[t][p].total;
      }
    }
  }
  void pack(const RecordPart& part, std::int16_t* panel) const {
    part.prefetch<kRecord / kLineBytes>(0);
    Nvfp4Panels::pack(part.line(0), panel);
  }
  template <int /* kParts */, int kVectors, int kTokens>
  static void dot(const std::int16_t* panels, int /* part */, const Activations& in, std::size_t at,
                  I32V (&sums)[kTokens][kVectors]) {
    Nvfp4Panels::dot<Steps::kPlanes>(panels, in, at, sums);
  }
  I32V units(const RecordPart& part) const {
    return load_unit(part.line(8));
  }
  F32V step(F32V acc, I32V sum, int /* half */, I32V units, const float* d) const {
    return Steps::template step<kWide>(acc, sum, units, *d, w_);
  }

  static bool is_exception(const RecordPart& part) {
    std::uint32_t first_row;
    __builtin_memcpy(&first_row, part.record + kRecordScales, sizeof first_row);
    return first_row == kWideMark * 0x01010101U;
  }
  // The step that ends with this block, of kLanes rows, for all tokens; acc is [n_rows, kLanes].
  void step_exception(const RecordPart& part, const Activations& in, float* acc) const {
    WideRow<kBlocksPerStep> rows[kLanes];
    const int first = part.block - part.block % kBlocksPerStep;
    for (int r = 0; r < kLanes; ++r) {
      const int row = part.tile * kTileRows + part.row + r;
      if (row < w_.n_out) rows[r].load(w_, row, first, part.block + 1);
    }
    for (int token = 0; token < in.n_rows; ++token) {
      float sums[kLanes];
      for (int r = 0; r < kLanes; ++r) sums[r] = static_cast<float>(rows[r].dot(in, token, first, part.block + 1));
      const float d = in.d[static_cast<std::size_t>(part.block) * in.n_rows + token];
      float* lanes = acc + static_cast<std::size_t>(token) * kLanes;
      f32_store(lanes, Steps::step_whole(f32_load(lanes), f32_load(sums), d, w_));
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
      for (int p = 0; p < kPartsAtOnce; ++p) sum[p] = plane_dot(sum[p], w[i][p], plane + 16 * g, i);
    }
#pragma GCC unroll 4
    for (int p = 0; p < kPartsAtOnce; ++p) add_scaled(to[p], sum[p], scales[p], g);
  }

  const Nvfp4Weights& w_;
  int n_blocks_;
};

// Calls run(is_wide, job) for each run of tiles of one kind.
template <class Run>
inline void for_runs_of_tiles(const Nvfp4Weights& w, const LinearJob& job, const Run& run) {
  int row = job.row_begin;
  while (row < job.row_end) {
    const std::uint8_t wide = w.is_wide[row / kTileRows];
    int end = row;
    while (end < job.row_end && w.is_wide[end / kTileRows] == wide) end += kTileRows;
    LinearJob part = job;
    part.row_begin = row;
    part.row_end = end < job.row_end ? end : job.row_end;
    run(wide != 0, part);
    row = end;
  }
}

template <class Steps>
void linear_nvfp4(const Nvfp4Weights& w, const Activations& activations, const LinearJob& job) {
  Activations in = activations;
  float* const c = job.scratch + static_cast<std::size_t>(in.n_rows) * kGemmRows;
  const bool is_narrow = Steps::prepare(w, in, c);
  for_runs_of_tiles(w, job, [&](bool is_wide, const LinearJob& run) {
    if (is_wide || !is_narrow) {
      linear(Nvfp4Format<Steps, true>(w, in.n_blocks), in, run);
    } else {
      linear(Nvfp4Format<Steps, false>(w, in.n_blocks), in, run);
    }
  });
}

}  // namespace
}  // namespace nibble::kernels::cpu
