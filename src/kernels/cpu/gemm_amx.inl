// NVFP4 for many tokens on bf16 tiles (docs/contract.md, section 4).
//
// code * scale has six significant bits, an activation is a multiple of 32 plus 0..31: all of them are bf16, and both
// parts meet a weight in the same f32 tile. Where a block has a certificate (amx_certificate.h) no order of its sums
// rounds, so the tile holds S; other blocks of 16 rows take the sums of int16 pairs instead. What remains is one fma
// per block and output, as everywhere.
//
//   rows of weights, at most kTileJobRows:        sums of all outputs, [tokens, rows], wait in the L2 cache
//     kTileBlocks blocks of K:                    their weights become bf16 once, in the L2 cache
//       groups of 32 tokens:                      their activations become bf16 once, in the L1 cache
//         pairs of 16 rows, tiles of 16 tokens:   a phase: for each block eight tile operations on two tiles of sums,
//                                                 and between these the fmas of the phase before
//
// A tile operation takes long, and a store of its sums would make all that follows wait: sums are stored kStoreDelay
// operations later. Two blocks, because what a phase reads and writes must fit the L1 cache beside the activations
// (three: a fifth slower).
#pragma once

namespace nibble::kernels::cpu {
namespace {

constexpr int kTile = 16 * 16;       // f32 of a tile of sums
constexpr int kHalfBlock = 16 * 32;  // bf16 of a tile: 16 tokens or rows, half a block
constexpr int kTileTokens = 16;
constexpr int kGroupTokens = 2 * kTileTokens;
constexpr int kPairRows = 2 * kTileRows;
constexpr int kTileBlocks = 2;
constexpr int kTileJobRows = 512;
constexpr int kTileJobTokens = 512;
constexpr int kBlockDots = 8;   // tile operations of a block of a phase
constexpr int kStoreDelay = 2;  // of them, from the last one of a block to the stores of its sums
constexpr int kAddDelay = 1;    // and from there to the first fma
constexpr int kTokenLines = kTileBlocks * kGroupTokens * 2;  // cache lines of the integers of a group

// Of one thread, in LinearJob::scratch.
struct TileScratch {
  float acc[kTileJobTokens / kGroupTokens][kTileJobRows / kPairRows][2 /* of tokens */][2 /* of rows */ * kTile];
  std::uint16_t weights[kTileJobRows / kPairRows][kTileBlocks][2 /* tiles */][2 /* halves */ * kHalfBlock];
  float apart0[17 * 16];  // so that what is stored and what is loaded next differ in their place in a page
  std::uint16_t tokens[kTileBlocks][2 /* halves */][2 /* parts */][2 /* tiles */][kHalfBlock];
  float apart1[17 * 16];
  float sums[kTileBlocks][2 /* of rows */ * kTile];
  float c[kTileJobTokens / kGroupTokens][kTileBlocks][kGroupTokens];
};

// S of a phase whose fmas have not been done.
struct PendingSums {
  float* sums = nullptr;     // [n_blocks, 2 of rows, kTile]
  float* acc = nullptr;      // [2 of rows, kTile]
  const float* c = nullptr;  // [n_blocks, kGroupTokens], from the first token of the tile on
  bool is_certified = true;
};
// What of it tokens [first, last) of the tile have.
template <int kBlocks>
[[gnu::always_inline]] inline void add_pending(const PendingSums& pending, int first, int last) {
  constexpr int kVectors = 2 * kTileRows / kLanes;
  const auto at = [](int v) { return v * kLanes / kTileRows * kTile + v * kLanes % kTileRows; };
#pragma GCC unroll 16
  for (int t = first; t < last; ++t) {
    float* const to = pending.acc + kTileRows * t;
    const float* const from = pending.sums + kTileRows * t;
    F32V acc[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[v] = f32_load(to + at(v));
#pragma GCC unroll 2
    for (int b = 0; b < kBlocks; ++b) {
      const F32V c = f32_set1(pending.c[b * kGroupTokens + t]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[v] = f32_fma(f32_load(from + b * 2 * kTile + at(v)), c, acc[v]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) f32_store(to + at(v), acc[v]);
  }
}

// What a phase reads and writes.
struct Phase {
  const std::uint16_t (*weights)[2][2 * kHalfBlock];   // [n_blocks]: a pair of rows
  const std::uint16_t (*tokens)[2][2][2][kHalfBlock];  // [n_blocks]: a group
  int tile;                                            // of the group's
  float* sums;                                         // [n_blocks, 2 of rows, kTile]
};

// kBlocks blocks of a phase, the first on the sums kFirst and kFirst + 1, the next on the other two of the four.
template <int kBlocks, int kFirst, bool kHasPending, class Tiles, class Mend>
class PhaseRun {
 public:
  PhaseRun(Tiles& tiles, const Phase& phase, const PendingSums& pending, const Mend& mend)
      : tiles_(tiles), phase_(phase), pending_(pending), mend_(mend) {}

  [[gnu::always_inline]] void run() {
    half<0, 0>();
    half<0, 1>();
    if constexpr (kBlocks == 2) {
      half<1, 0>();
      half<1, 1>();
    }
  }

 private:
  // Of the last block of the phase before, as of the second block of this one.
  static constexpr int sums_of(int block) { return (kFirst + 2 * block) % 4; }

  template <int kBlock, int kHalf>
  [[gnu::always_inline]] void half() {
    constexpr int kSums = sums_of(kBlock), kDots = kBlockDots * kBlock + kBlockDots / 2 * kHalf;  // before these
    const auto& weights = phase_.weights[kBlock];
    const auto& tokens = phase_.tokens[kBlock][kHalf];
    if constexpr (kHalf == 0) {
      tiles_.template zero<kSums>();
      tiles_.template zero<kSums + 1>();
    }
    tiles_.template load<6>(weights[0] + kHalf * kHalfBlock);
    tiles_.template load<4>(tokens[0][phase_.tile]);
    tiles_.template dot<kSums, 4, 6>();
    after<kDots + 1>();
    tiles_.template load<7>(weights[1] + kHalf * kHalfBlock);
    tiles_.template dot<kSums + 1, 4, 7>();
    after<kDots + 2>();
    tiles_.template load<5>(tokens[1][phase_.tile]);
    tiles_.template dot<kSums, 5, 6>();
    after<kDots + 3>();
    tiles_.template dot<kSums + 1, 5, 7>();
    after<kDots + 4>();
  }

  // What is due after kDots tile operations.
  template <int kDots>
  [[gnu::always_inline]] void after() {
    if constexpr (kDots == kStoreDelay) {
      if constexpr (kHasPending) {
        store<sums_of(1)>(pending_.sums + (kBlocks - 1) * 2 * kTile);
        if (__builtin_expect(!pending_.is_certified, 0)) mend_();
      }
    } else if constexpr (kDots % kBlockDots == kStoreDelay) {
      store<sums_of(kDots / kBlockDots - 1)>(phase_.sums + (kDots / kBlockDots - 1) * 2 * kTile);
    }
    // From here until the place of the first sums is wanted again.
    constexpr int kStart = kStoreDelay + kAddDelay, kEnd = kBlocks == 1 ? kBlockDots : kBlockDots + kStoreDelay - 1;
    if constexpr (kHasPending && kDots > kStart && kDots <= kEnd) {
      constexpr int kFirstToken = kTileTokens * (kDots - 1 - kStart) / (kEnd - kStart);
      add_pending<kBlocks>(pending_, kFirstToken, kTileTokens * (kDots - kStart) / (kEnd - kStart));
    }
  }
  template <int kSums>
  [[gnu::always_inline]] void store(float* sums) {
    tiles_.template store<kSums>(sums);
    tiles_.template store<kSums + 1>(sums + kTile);
  }

  Tiles& tiles_;
  const Phase phase_;  // copies, which registers hold: what is behind references is loaded after every tile operation
  const PendingSums pending_;
  const Mend& mend_;
};

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
      float* acc = s_.acc[group][0][0];
      for (int i = 0; i < n_pairs * 4 * kTile; ++i) acc[i] = 0.0F;
    }
    for (first_block_ = 0; first_block_ < in_.n_blocks; first_block_ += kTileBlocks) {
      const int left = in_.n_blocks - first_block_;
      n_chunk_ = left < kTileBlocks ? left : kTileBlocks;
      for (int tile = 0; tile < n_row_tiles_; ++tile) fold_weights(tile);
      if (n_chunk_ == kTileBlocks) {
        run_chunk<kTileBlocks>(n_groups, n_pairs);
      } else {
        run_chunk<1>(n_groups, n_pairs);
      }
    }
    store(n_groups);
  }

  // All phases of n_chunk_ = kBlocks blocks.
  template <int kBlocks>
  void run_chunk(int n_groups, int n_pairs) {
    static_assert(kTileBlocks == 2);
    PendingSums pending = {s_.sums[0], s_.acc[0][0][0], s_.c[0][0], true};
    int n_phases = 0;
    for (int group = 0; group < n_groups; ++group) {
      split_tokens(group);
      const int n_tiles = n_tokens_ - group * kGroupTokens > kTileTokens ? 2 : 1;
      for (int i = 0; i < n_pairs * n_tiles; ++i, ++n_phases) {
        const int pair = i / n_tiles, tile = i % n_tiles;
        const Phase phase = {s_.weights[pair], s_.tokens, tile, s_.sums[0]};
        if (n_phases == 0) {
          run_phase<kBlocks, 0, false>(phase, pending);
        } else if constexpr (kBlocks == 2) {
          run_phase<kBlocks, 0, true>(phase, pending);
        } else {
          if (n_phases % 2 == 0) {
            run_phase<kBlocks, 0, true>(phase, pending);
          } else {
            run_phase<kBlocks, 2, true>(phase, pending);  // a phase that follows one on the sums 0 and 1
          }
        }
        pending = {phase.sums, s_.acc[group][pair][tile], s_.c[group][0] + kTileTokens * tile, is_certified(pair)};
        pending_pair_ = pair, pending_token_ = group * kGroupTokens + tile * kTileTokens;
        prefetch_tokens(group + 1, kTokenLines * i / (n_pairs * n_tiles), kTokenLines * (i + 1) / (n_pairs * n_tiles));
      }
    }
    float* const last = pending.sums + (kBlocks - 1) * 2 * kTile;
    if (kBlocks == 2 || n_phases % 2 == 0) {
      tiles_.template store<2>(last);
      tiles_.template store<3>(last + kTile);
    } else {
      tiles_.template store<0>(last);
      tiles_.template store<1>(last + kTile);
    }
    if (!pending.is_certified) mend(pending.sums);
    add_pending<kBlocks>(pending, 0, kTileTokens);
  }
  template <int kBlocks, int kFirst, bool kHasPending>
  [[gnu::always_inline]] void run_phase(const Phase& phase, const PendingSums& pending) {
    const auto mend_pending = [&]() __attribute__((always_inline)) {
      mend(pending.sums);
    };
    PhaseRun<kBlocks, kFirst, kHasPending, Tiles, decltype(mend_pending)>(tiles_, phase, pending, mend_pending).run();
  }

  const std::uint8_t* certified(int row_tile) const {
    return w_.certified + tile_at(row_tile) * in_.n_blocks + first_block_;
  }
  bool is_certified(int pair) const {
    bool all = true;
    for (int tile = 2 * pair; tile < 2 * pair + 2 && tile < n_row_tiles_; ++tile) {
      for (int b = 0; b < n_chunk_; ++b) all &= certified(tile)[b] != 0;
    }
    return all;
  }
  // Of the pending phase what has no certificate.
  [[gnu::noinline]] void mend(float* sums) {
    for (int b = 0; b < n_chunk_; ++b) {
      for (int i = 0; i < 2 && 2 * pending_pair_ + i < n_row_tiles_; ++i) {
        const int tile = 2 * pending_pair_ + i;
        if (certified(tile)[b] == 0) sum_integers(tile, b, pending_token_, sums + (2 * b + i) * kTile);
      }
    }
  }

  // Some lines of a group's integers, which come from the L3 cache, into the L2 cache: 4 KB lie together, and then a
  // step of many pages. always_inline: see RecordPart::prefetch.
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
      __builtin_prefetch(q + line % (2 * kGroupTokens) * 32, 0, 2);
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

  // S of a tile of rows, a block without certificate and the tokens from `first` on, as f32.
  void sum_integers(int tile, int block, int first, float* sums) {
    const int n = n_tokens_ - first < kTileTokens ? n_tokens_ - first : kTileTokens;
    const std::int16_t* q =
        in_.q + 64 * (static_cast<std::size_t>(first_block_ + block) * in_.n_rows + first_token_ + first);
    alignas(64) std::int16_t panel[kPanelSize];
    for (int row = 0; row < kTileRows; row += kLanes) {
      const RecordPart part = format_.part(row_ + tile * kTileRows + row, first_block_ + block);
      fold_record(part.line(0), panel);
      const F32V units = f32_raise(f32_set1(1.0F / kUnitScale), format_.units(part));
      const auto run = [&]<int kTokens>(int t) {
        I32V s[kTokens][1];
        for (int i = 0; i < kTokens; ++i) s[i][0] = i32_zero();
        dot_panels<32>(panel, q + 64 * t, s);
        for (int i = 0; i < kTokens; ++i) f32_store(sums + (t + i) * kTileRows + row, f32_from(s[i][0]) * units);
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
          const float* tile = s_.acc[group][row / kPairRows][t / kTileTokens] + row % kPairRows / kTileRows * kTile;
          store_lanes(f32_load(tile + t % kTileTokens * kTileRows + row % kTileRows), job_, row_ + row, w_.n_out,
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
  int row_ = 0, n_row_tiles_ = 0;             // weights at hand
  int first_token_ = 0, n_tokens_ = 0;        // tokens at hand
  int first_block_ = 0, n_chunk_ = 0;         // blocks at hand
  int pending_pair_ = 0, pending_token_ = 0;  // of the pending phase
};

// Fewer tokens are done sooner without tiles, and so are 17 to 20, whose second tile is nearly empty.
inline bool is_worth_tiles(int n_tokens) {
  return n_tokens == kTileTokens || n_tokens > kTileTokens + 4;
}

template <class Tiles>
void linear_nvfp4_tiles(const Nvfp4Weights& w, const Activations& in, const LinearJob& job) {
  if (!is_worth_tiles(in.n_rows)) return linear_nvfp4<A11Steps>(w, in, job);
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
