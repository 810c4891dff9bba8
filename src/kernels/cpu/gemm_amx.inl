// NVFP4 for many tokens on bf16 tiles (docs/contract.md, section 4).
//
// code * scale has six significant bits, an activation is a multiple of 32 plus 0..31: all of them are bf16, and both
// parts meet a weight in the same f32 tile. Where a block has a certificate (amx_certificate.h) no order of its sums
// rounds, so the tile holds S; other blocks of 16 rows take the sums of int16 pairs. What remains is one fma per block
// and output, as everywhere.
//
//   rows of weights, at most kTileJobRows:        sums of all outputs, [tokens, rows], wait in the L2 cache
//     kTileBlocks blocks of K:                    their weights become bf16 once, in the L2 cache
//       groups of 32 tokens:                      their activations become bf16 once, in the L1 cache
//         pairs of 16 rows, blocks:               four tiles of sums, 16 tile operations; between these, the fmas of
//                                                 the step before
//
// Two blocks, because what a step reads and writes must fit the L1 cache beside the activations (four: 7 % slower).
#pragma once

namespace nibble::kernels::cpu {
namespace {

constexpr int kTile = 16 * 16;       // f32 of a tile of sums
constexpr int kHalfBlock = 16 * 32;  // bf16 of a tile: 16 tokens or rows, half a block
constexpr int kGroupTokens = 32;
constexpr int kPairRows = 32;
constexpr int kTileBlocks = 2;
constexpr int kTileJobRows = 512;
constexpr int kTileJobTokens = 512;
constexpr int kTokenLines = kTileBlocks * kGroupTokens * 2;  // cache lines of the integers of a group

// Of one thread, in LinearJob::scratch.
struct TileScratch {
  float acc[kTileJobTokens / kGroupTokens][kTileJobRows / kPairRows][4 * kTile];  // tiles [2 of tokens, 2 of rows]
  std::uint16_t weights[kTileJobRows / kPairRows][kTileBlocks][2 /* tiles */][2 /* halves */ * kHalfBlock];
  std::uint16_t tokens[kTileBlocks][2 /* halves */][2 /* parts */][2 /* tiles */][kHalfBlock];
  float sums[4 * kTile];
  float c[kTileJobTokens / kGroupTokens][kTileBlocks][kGroupTokens];
};
// S of a step whose fmas have not been done.
struct PendingSums {
  const float* sums;  // [2 of tokens, 2 of rows, kTile]
  float* acc;         // the same
  const float* c;     // [kGroupTokens]
};
// Four of its vectors of 16.
[[gnu::always_inline]] inline void add_pending(const PendingSums& pending, int first) {
#pragma GCC unroll 4
  for (int v = first; v < first + 4; ++v) {
    const F32V c = f32_set1(pending.c[v / 32 * 16 + v % 16]);
#pragma GCC unroll 4
    for (int lane = 16 * v; lane < 16 * v + 16; lane += kLanes) {
      f32_store(pending.acc + lane, f32_fma(f32_load(pending.sums + lane), c, f32_load(pending.acc + lane)));
    }
  }
}

// One part of one half of a block: the products of its tiles, and between them kTokenTiles x 8 vectors of the pending
// fmas.
template <int kTokenTiles, bool kHasPending, int kHalf, int kPart, class Tiles>
[[gnu::always_inline]] inline void tile_part(Tiles& tiles, const std::uint16_t (*tokens)[kHalfBlock],
                                             const std::uint16_t (*weights)[2 * kHalfBlock],
                                             const PendingSums& pending) {
  constexpr int kFirst = (2 * kHalf + kPart) * kTokenTiles * 8;
  const auto add_some = [&](int i) __attribute__((always_inline)) {
    if constexpr (kHasPending) add_pending(pending, kFirst + 4 * i);
  };
  if constexpr (kPart == 0) tiles.template load<6>(weights[0] + kHalf * kHalfBlock);
  tiles.template load<4>(tokens[0]);
  tiles.template dot<0, 4, 6>();
  add_some(0);
  if constexpr (kPart == 0) tiles.template load<7>(weights[1] + kHalf * kHalfBlock);
  tiles.template dot<1, 4, 7>();
  add_some(1);
  if constexpr (kTokenTiles == 2) {
    tiles.template load<5>(tokens[1]);
    tiles.template dot<2, 5, 6>();
    add_some(2);
    tiles.template dot<3, 5, 7>();
    add_some(3);
  }
}

// One block of two tiles of rows and kTokenTiles of tokens, and the fmas of the step before if there was one.
template <int kTokenTiles, bool kHasPending, class Tiles>
[[gnu::always_inline]] inline void tile_step(Tiles& tiles, const std::uint16_t (*tokens)[2][2][kHalfBlock],
                                             const std::uint16_t (*weights)[2 * kHalfBlock], float* sums,
                                             const PendingSums& pending) {
  tiles.template zero<0>();
  tiles.template zero<1>();
  if constexpr (kTokenTiles == 2) {
    tiles.template zero<2>();
    tiles.template zero<3>();
  }
  tile_part<kTokenTiles, kHasPending, 0, 0>(tiles, tokens[0][0], weights, pending);
  tile_part<kTokenTiles, kHasPending, 0, 1>(tiles, tokens[0][1], weights, pending);
  tile_part<kTokenTiles, kHasPending, 1, 0>(tiles, tokens[1][0], weights, pending);
  tile_part<kTokenTiles, kHasPending, 1, 1>(tiles, tokens[1][1], weights, pending);
  tiles.template store<0>(sums);
  tiles.template store<1>(sums + kTile);
  if constexpr (kTokenTiles == 2) {
    tiles.template store<2>(sums + 2 * kTile);
    tiles.template store<3>(sums + 3 * kTile);
  }
}

template <class Tiles>
class TileGemm {
 public:
  TileGemm(const Nvfp4Weights& weights, const Activations& in, const LinearJob& job)
      : format_(weights, in.n_blocks),
        w_(weights),
        in_(in),
        job_(job),
        s_(*reinterpret_cast<TileScratch*>(job.scratch)) {}

  void run() {
    tiles_.configure();
    const int n_tiles = (job_.row_end - job_.row_begin + kTileRows - 1) / kTileRows;
    const int n_jobs = (n_tiles * kTileRows + kTileJobRows - 1) / kTileJobRows;
    int row = job_.row_begin;
    for (int i = 0; i < n_jobs; ++i) {  // of nearly the same size
      row_ = row;
      row = job_.row_begin + (n_tiles * (i + 1) + n_jobs - 1) / n_jobs * kTileRows;
      n_row_tiles_ = (row - row_) / kTileRows;
      for (first_token_ = 0; first_token_ < in_.n_rows; first_token_ += kTileJobTokens) {
        const int left = in_.n_rows - first_token_;
        n_tokens_ = left < kTileJobTokens ? left : kTileJobTokens;
        run_rows();
      }
    }
    tiles_.release();
  }

 private:
  void run_rows() {
    const int n_groups = (n_tokens_ + kGroupTokens - 1) / kGroupTokens, n_pairs = (n_row_tiles_ + 1) / 2;
    for (int group = 0; group < n_groups; ++group) {
      float* acc = s_.acc[group][0];
      for (int i = 0; i < n_pairs * 4 * kTile; ++i) acc[i] = 0.0F;
    }
    for (first_block_ = 0; first_block_ < in_.n_blocks; first_block_ += kTileBlocks) {
      const int left = in_.n_blocks - first_block_;
      n_chunk_ = left < kTileBlocks ? left : kTileBlocks;
      for (int tile = 0; tile < n_row_tiles_; ++tile) fold_weights(tile);
      for (int group = 0; group < n_groups; ++group) {
        split_tokens(group);
        if (n_tokens_ - group * kGroupTokens > 16) {
          run_group<2>(group, n_pairs);
        } else {
          run_group<1>(group, n_pairs);
        }
      }
    }
    store(n_groups);
  }

  template <int kTokenTiles>
  void run_group(int group, int n_pairs) {
    const int n_steps = n_pairs * n_chunk_;
    PendingSums pending{};
    const auto step = [&]<bool kHasPending>(int i, int pair, int block) {
      tile_step<kTokenTiles, kHasPending>(tiles_, s_.tokens[block], s_.weights[pair][block], s_.sums, pending);
      pending = {s_.sums, s_.acc[group][pair], s_.c[group][block]};
      const std::uint8_t* certified = w_.certified + tile_at(2 * pair) * in_.n_blocks + first_block_ + block;
      if (certified[0] == 0) sum_integers(2 * pair, block, group, s_.sums);
      if (2 * pair + 1 < n_row_tiles_ && certified[in_.n_blocks] == 0) {
        sum_integers(2 * pair + 1, block, group, s_.sums + kTile);
      }
      prefetch_tokens(group + 1, kTokenLines * i / n_steps, kTokenLines * (i + 1) / n_steps);
    };
    step.template operator()<false>(0, 0, 0);
    int pair = 0, block = 1;
    for (int i = 1; i < n_steps; ++i, ++block) {
      if (block == n_chunk_) ++pair, block = 0;
      step.template operator()<true>(i, pair, block);
    }
    for (int vector = 0; vector < kTokenTiles * 32; vector += 4) add_pending(pending, vector);
  }

  // Some lines of a group's integers, which come from the L3 cache: 4 KB lie together, and then a step of many pages.
  // always_inline: see RecordPart::prefetch.
  [[gnu::always_inline]] void prefetch_tokens(int group, int begin, int end) const {
    int first = first_block_, token = first_token_ + group * kGroupTokens;
    if (group * kGroupTokens >= n_tokens_) {  // the first of the next blocks
      first += kTileBlocks;
      token = first_token_;
    }
    for (int line = begin; line < end; ++line) {
      const int block = first + line / (2 * kGroupTokens);
      if (block >= in_.n_blocks) return;
      const std::int16_t* q = in_.q + 64 * (static_cast<std::size_t>(block) * in_.n_rows + token);
      __builtin_prefetch(q + line % (2 * kGroupTokens) * 32);
    }
  }

  std::size_t tile_at(int tile) const { return static_cast<std::size_t>(row_ / kTileRows) + tile; }

  void fold_weights(int tile) {
    for (int block = 0; block < n_chunk_; ++block) {
      const RecordPart part = format_.part(row_ + tile * kTileRows, first_block_ + block);
      part.template prefetch<kRecordBytes / kLineBytes>(0);
      fold_record_bf16(part.record, s_.weights[tile / 2][block][tile % 2]);
    }
  }

  void split_tokens(int group) {
    const int first = first_token_ + group * kGroupTokens, left = n_tokens_ - group * kGroupTokens;
    const int n = left < kGroupTokens ? left : kGroupTokens;
    for (int block = 0; block < n_chunk_; ++block) {
      const std::size_t at = static_cast<std::size_t>(first_block_ + block) * in_.n_rows + first;
      float* c = s_.c[group][block];
      for (int t = 0; t < n; ++t) c[t] = in_.d[at + t] * w_.g;
      for (int t = n; t < kGroupTokens; ++t) c[t] = 0.0F;
      for (int t = 0; t < n; ++t) {
        for (int half = 0; half < 2; ++half) {
          auto& parts = s_.tokens[block][half];
          split_bf16(in_.q + 64 * (at + t) + 32 * half, parts[0][t / 16] + t % 16 * 32, parts[1][t / 16] + t % 16 * 32);
        }
      }
    }
  }

  // S of a block without certificate, as f32.
  void sum_integers(int tile, int block, int group, float* sums /* tiles of rows lie 2 * kTile apart */) {
    const int first = first_token_ + group * kGroupTokens, left = n_tokens_ - group * kGroupTokens;
    const int n = left < kGroupTokens ? left : kGroupTokens;
    const std::int16_t* q = in_.q + 64 * (static_cast<std::size_t>(first_block_ + block) * in_.n_rows + first);
    alignas(64) std::int16_t panel[kPanelSize];
    for (int row = 0; row < kTileRows; row += kLanes) {
      const RecordPart part = format_.part(row_ + tile * kTileRows + row, first_block_ + block);
      fold_record(part.line(0), panel);
      const F32V units = f32_raise(f32_set1(1.0F / kUnitScale), format_.units(part));
      const auto run = [&]<int kTokens>(int t) {
        I32V s[kTokens][1];
        for (int i = 0; i < kTokens; ++i) s[i][0] = i32_zero();
        dot_panels<32>(panel, q + 64 * t, s);
        for (int i = 0; i < kTokens; ++i) {
          f32_store(sums + (t + i) / 16 * 2 * kTile + (t + i) % 16 * 16 + row, f32_from(s[i][0]) * units);
        }
      };
      int t = 0;
      for (; t + 4 <= n; t += 4) run.template operator()<4>(t);
      for (; t < n; ++t) run.template operator()<1>(t);
    }
  }

  void store(int n_groups) const {
    for (int group = 0; group < n_groups; ++group) {
      for (int t = 0; t < kGroupTokens && group * kGroupTokens + t < n_tokens_; ++t) {
        for (int row = 0; row < n_row_tiles_ * kTileRows && row_ + row < job_.row_end; row += kLanes) {
          const float* tile = s_.acc[group][row / kPairRows] + (t / 16 * 2 + row % kPairRows / 16) * kTile;
          store_lanes(f32_load(tile + t % 16 * 16 + row % 16), job_, row_ + row, w_.n_out,
                      first_token_ + group * kGroupTokens + t);
        }
      }
    }
  }

  Nvfp4Format<A11Steps, false> format_;
  const Nvfp4Weights& w_;
  const Activations& in_;
  const LinearJob& job_;
  TileScratch& s_;
  Tiles tiles_;
  int row_ = 0, n_row_tiles_ = 0;       // weights at hand
  int first_token_ = 0, n_tokens_ = 0;  // tokens at hand
  int first_block_ = 0, n_chunk_ = 0;   // blocks at hand
};

template <class Tiles>
void linear_nvfp4_tiles(const Nvfp4Weights& w, const Activations& in, const LinearJob& job) {
  if (in.n_rows <= kGemvTokens) return linear_nvfp4<A11Steps>(w, in, job);
  for_runs_of_tiles(w, job, [&](bool is_wide, const LinearJob& run) {
    if (is_wide) {
      linear_nvfp4<A11Steps>(w, in, run);
    } else {
      TileGemm<Tiles>(w, in, run).run();
    }
  });
}

}  // namespace
}  // namespace nibble::kernels::cpu
