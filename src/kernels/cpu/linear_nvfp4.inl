// NVFP4 from records (nvfp4_tiles.h).
//
//   one token:      codes meet two planes of 8 bits in byte dot products, and the sums of each group its scale. Two
//   tiles
//                   of rows are read at once: a core follows two streams better than one
//   several tokens: codes times scales are a panel of int16. |q1 * scale| <= 12 * 1920, and a block's sum stays below
//                   64 * 12 * 1920 * 1023 < 2^31, so int32 is exact in any order
#pragma once

namespace nibble::kernels::cpu {
namespace {

// Two streams at this distance read 97 % of what a core can, one stream 84 % (Zen 5, huge pages; without prefetching
// 88 and 76 %, half as far ahead 89 %).
constexpr int kPrefetchBytes = 8 * kRecordBytes;

inline void prefetch_record(const std::uint8_t* record) {
#pragma GCC unroll 9
  for (int i = 0; i < kRecordBytes; i += kLineBytes) __builtin_prefetch(record + kPrefetchBytes + i);
}

// f32(S) of kLanes rows: the rounded integer times a power of two, which is exact.
inline F32V plane_block(const std::uint8_t* record, const PlaneBlock& in) {
  const GroupScales scales = group_scales(record + kRecordScales);
  I32V high = i32_zero(), low = i32_zero();
#pragma GCC unroll 2
  for (int pair = 0; pair < 2; ++pair) {
    PlaneSum high_sum[2], low_sum[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const int g = 2 * pair + i;
      high_sum[i] = plane_sum(in.high_start[g]);
      low_sum[i] = plane_sum(in.low_start[g]);
#pragma GCC unroll 2
      for (int z = 0; z < 2; ++z) {
        Quads first, second;
        decode_quads(record + kLineBytes * (2 * g + z), first, second);
        const int at = 16 * g + 8 * z;
        high_sum[i] = plane_dot(plane_dot(high_sum[i], first, in.high + at), second, in.high + at + 4);
        low_sum[i] = plane_dot(plane_dot(low_sum[i], first, in.low + at), second, in.low + at + 4);
      }
    }
    high = scaled_add(high, high_sum[0], high_sum[1], scales, pair);
    low = scaled_add(low, low_sum[0], low_sum[1], scales, pair);
  }
  return f32_from(i32_times_8(high) + low) * load_unit(record + kRecordScales);
}

template <int kStreams>
inline void gemv_tiles(const Nvfp4Weights& w, const Activations& in, const LinearJob& job, const int* rows) {
  constexpr int kParts = kTileRows / kLanes;
  F32V acc[kStreams][kParts];
  const std::uint8_t* records[kStreams];
  for (int s = 0; s < kStreams; ++s) {
    records[s] = w.records + static_cast<std::size_t>(rows[s] / kTileRows) * in.n_blocks * kRecordBytes;
    for (int part = 0; part < kParts; ++part) acc[s][part] = f32_set1(0.0F);
  }
  for (int block = 0; block < in.n_blocks; ++block) {
    const F32V c = f32_set1(in.d[block] * w.g);
    for (int s = 0; s < kStreams; ++s) {
      prefetch_record(records[s]);
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        acc[s][part] = f32_fma(plane_block(records[s] + 4 * kLanes * part, in.planes[block]), c, acc[s][part]);
      }
      records[s] += kRecordBytes;
    }
  }
  for (int s = 0; s < kStreams; ++s) {
    for (int part = 0; part < kParts && rows[s] + part * kLanes < job.row_end; ++part) {
      store_lanes(perturbed_gemv(acc[s][part], in.n_in / 64), job, rows[s] + part * kLanes, w.n_out, 0);
    }
  }
}

inline void gemv_nvfp4(const Nvfp4Weights& w, const Activations& in, const LinearJob& job) {
  const int n_tiles = (job.row_end - job.row_begin + kTileRows - 1) / kTileRows;
  const int half = n_tiles / 2;
  for (int tile = 0; tile < half; ++tile) {
    const int rows[2] = {job.row_begin + tile * kTileRows, job.row_begin + (tile + half) * kTileRows};
    gemv_tiles<2>(w, in, job, rows);
  }
  if (n_tiles % 2 != 0) {
    const int last = job.row_begin + (n_tiles - 1) * kTileRows;
    gemv_tiles<1>(w, in, job, &last);
  }
}

// The panels of several tokens.
class Nvfp4Format {
 public:
  static constexpr bool kHalves = false;
  using Units = F32V;

  Nvfp4Format(const Nvfp4Weights& weights, int n_blocks) : w_(weights), n_blocks_(n_blocks) {}

  int n_out() const { return w_.n_out; }

  void select(int row, int n_vectors) {
    for (int v = 0; v < n_vectors; ++v) {
      const int at = row + v * kLanes;
      records_[v] =
          w_.records + static_cast<std::size_t>(at / kTileRows) * n_blocks_ * kRecordBytes + 4 * (at % kTileRows);
    }
  }
  void pack(int vector, int block, std::int16_t* panel) const {
    const std::uint8_t* record = records_[vector] + static_cast<std::size_t>(block) * kRecordBytes;
    prefetch_record(record);
    fold_record(record, panel);
  }
  F32V units(int vector, int block) const {
    return load_unit(records_[vector] + static_cast<std::size_t>(block) * kRecordBytes + kRecordScales);
  }
  F32V step(F32V acc, const BlockSums& sums, F32V units, const float* d) const {
    return f32_fma(f32_from(sums.first) * units, f32_set1(*d * w_.g), acc);
  }

 private:
  const Nvfp4Weights& w_;
  int n_blocks_;
  const std::uint8_t* records_[kPanelVectors];
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
    } else if (in.n_rows == 1) {
      gemv_nvfp4(w, in, run);
    } else {
      Nvfp4Format format(w, in.n_blocks);
      gemm(format, in, run);
    }
    row = end;
  }
}

}  // namespace
}  // namespace nibble::kernels::cpu
