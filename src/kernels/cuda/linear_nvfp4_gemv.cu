// NVFP4 weights times up to 16 rows of activations: as fast as the weights arrive.
//
// A thread block owns tiles of 16 weight rows. K is divided among its compute warps: in round r, warp w multiplies pair
// r * kWarps + w of every tile, so its activations stay in registers for a whole round and nobody shares them. A warp
// fills a ring of its own in shared memory by asynchronous copies, so that nothing but the chain joins the warps.
// Exact sums of blocks go through shared memory to one more warp, the chain, which runs the fma per block in order.
//
// One row: the eight columns of the matrix instruction are eight groups of a pair. Activations are masked so that
// column j sees group j alone, and each lane scales two groups of two rows: half of the instructions of folding the
// scales into the weights, which is what more rows do.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/linear_nvfp4_launch.h"

namespace nibble::kernels::cuda::nvfp4 {
namespace {

constexpr int kWarps = 8;  // that compute
constexpr int kRoundBlocks = 2 * kWarps;
constexpr int kMaxTiles = 128;  // of a block of threads
constexpr int kColumns = 8;     // of the matrix instruction

// kTokens: 1, 8 or 16.
template <int kTokens>
struct Shape {
  static constexpr int kUnits = kTokens == 1 ? 2 : 1;       // of a step of a warp: one pair of so many tiles
  static constexpr int kRingUnits = kTokens == 1 ? 10 : 8;  // of a warp; also the most tiles between two passes over K
  static constexpr int kChains = kTokens == 16 ? 4 : 2;     // warps that run the fma per block; each has its tiles
  static constexpr float kSumUnit = kTokens == 1 ? 0x1p33f : nvfp4::kSumUnit;
  static constexpr int kThreads = (kWarps + kChains) * kWarp;
  static constexpr int kColumnTiles = kTokens == 16 ? 2 : 1;
  static constexpr int kBlocksPerMultiprocessor = kTokens == 16 ? 1 : 2;
  static constexpr int kSumBuffers = kTokens == 1 ? 4 : kTokens == 8 ? 3 : 2;
  // Sums of a tile in a round: [blocks, column tiles, 16 rows, 8], or for one token [16 rows, blocks] with a gap that
  // keeps 16-byte loads of neighbouring rows off each other's banks.
  static constexpr int kRowStride = kRoundBlocks + 4;
  static constexpr int kSums = kTokens == 1 ? kTileRows * kRowStride : kRoundBlocks * kTileRows * kTokens;
};

template <int kTokens>
struct Shared {
  using S = Shape<kTokens>;
  alignas(128) std::uint8_t ring[kWarps][S::kRingUnits][kUnitBytes];
  alignas(16) float sums[S::kSumBuffers][S::kUnits][S::kSums];
  alignas(16) float acc[S::kRingUnits][kTileRows * kTokens];  // of the chain between rounds
  alignas(16) float factors[S::kChains][kNvfp4MaxSegments][kRoundBlocks][kTokens];
  const std::uint8_t* units[kMaxTiles + S::kRingUnits];  // of each tile
  std::uint8_t segment[kMaxTiles];
  std::uint8_t is_exact[kMaxTiles];
  int tile[kMaxTiles];  // within its segment
  int has_exact;
  u64 filled[S::kSumBuffers], drained[S::kSumBuffers];
};

// Tiles of this block of threads, written down once.
template <int kTokens>
__device__ int list_tiles(const Problem& p, bool only_exact, Shared<kTokens>& shared) {
  int n_tiles = 0;
  for (int s = 0; s < p.n_segments; ++s) n_tiles += p.segments[s].n_tiles;
  const int first = blockIdx.x, step = gridDim.x;
  const int mine = n_tiles > first ? (n_tiles - first + step - 1) / step : 0;
  for (int i = threadIdx.x; i < mine; i += Shape<kTokens>::kThreads) {
    int tile = first + i * step, s = 0;
    for (; tile >= p.segments[s].n_tiles; ++s) tile -= p.segments[s].n_tiles;
    if (only_exact) tile = p.segments[s].exact_list[tile];
    shared.units[i] = p.segments[s].units + static_cast<std::size_t>(tile) * p.n_pairs * kUnitBytes;
    shared.segment[i] = static_cast<std::uint8_t>(s);
    shared.is_exact[i] = p.segments[s].exact_flags[tile];
    if (shared.is_exact[i] != 0) shared.has_exact = 1;
    shared.tile[i] = tile;
  }
  return mine;
}

// Tiles in groups that fit into the ring, none larger than the one before.
template <int kMost>
struct Groups {
  u32 n, small, n_large;
  __device__ explicit Groups(u32 n_tiles)
      : n((n_tiles + kMost - 1) / kMost), small(n_tiles / n), n_large(n_tiles % n) {}
  __device__ u32 size(u32 group) const { return group >= n ? 0 : small + (group < n_large ? 1 : 0); }
};

// The order in which a warp passes over its units: for each group of tiles, each round in which it has a pair.
template <int kMost>
struct Passes {
  Groups<kMost> groups;
  u32 n_rounds;
  u32 group = 0, first = 0, round = 0;  // first: tile of the group

  __device__ Passes(const Groups<kMost>& g, u32 rounds) : groups(g), n_rounds(rounds) {}
  __device__ u32 tiles() const { return n_rounds == 0 ? 0 : groups.size(group); }
  __device__ void next() {
    if (++round < n_rounds) return;
    round = 0;
    first += groups.size(group++);
  }
};

// The activations of a pair as the B operand: [block][step][register].
struct OneRow {
  u32 b[2][4][2];

  // Column `m` sees group m: the halves of one 16-byte piece, in two steps of one block.
  __device__ void set(uint4 piece, int m) {
    const u32 half = m % 2 == 0 ? 0x0000FFFFu : 0xFFFF0000u;
#pragma unroll
    for (int block = 0; block < 2; ++block) {
#pragma unroll
      for (int pair_of_steps = 0; pair_of_steps < 2; ++pair_of_steps) {
        const u32 mask = m / 2 == block * 2 + pair_of_steps ? half : 0;
        b[block][pair_of_steps * 2][0] = piece.x & mask;
        b[block][pair_of_steps * 2][1] = piece.y & mask;
        b[block][pair_of_steps * 2 + 1][0] = piece.z & mask;
        b[block][pair_of_steps * 2 + 1][1] = piece.w & mask;
      }
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) keep(b[i / 8][i / 2 % 4][i % 2]);
  }
};

template <int kTokens>
struct Activations {
  static constexpr int kPieces = kTokens == 1 ? 1 : 4 * Shape<kTokens>::kColumnTiles;
  uint4 pieces[kPieces];

  __device__ void load(const Problem& p, int first_row, int pair, int m, int quad) {
    if constexpr (kTokens == 1) {
      const __half* q = p.q + static_cast<std::size_t>(first_row) * p.n_pairs * kNvfp4Pair + pair * kNvfp4Pair;
      pieces[0] = *reinterpret_cast<const uint4*>(q + m / 2 * 32 + quad * 8);
    } else {
#pragma unroll
      for (int j = 0; j < kPieces / 4; ++j) {
        const int row = first_row + j * kColumns + m;
        const __half* q = p.q + static_cast<std::size_t>(row) * p.n_pairs * kNvfp4Pair + pair * kNvfp4Pair;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          pieces[j * 4 + i] =
              row < p.n_rows ? *reinterpret_cast<const uint4*>(q + i * 32 + quad * 8) : make_uint4(0, 0, 0, 0);
        }
      }
    }
  }
};

struct Words {
  u32 w[2][4];   // [block][step]
  uint4 scales;  // one row: x alone
};
template <bool kOneRow>
__device__ inline Words load_words(u32 unit, int lane) {
  const uint4 a = load_shared16(unit + lane * 16), b = load_shared16(unit + kBlockCodeBytes + lane * 16);
  Words words = {{{a.x, a.y, a.z, a.w}, {b.x, b.y, b.z, b.w}}, {}};
  if constexpr (kOneRow) {
    words.scales.x = load_shared4(unit + kUnitCodeBytes + lane * 4);
  } else {
    words.scales = load_shared16(unit + kUnitCodeBytes + lane / 4 * 16);
  }
  return words;
}

// One row: sums of both blocks of a pair to sums[row][block]. kExact adds groups in f64, exact for any scales.
template <bool kExact>
__device__ inline void multiply_one_row(const Words& words, const OneRow& x, u32 sums, int lane) {
  float d[4] = {};
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    u32 a[4];
    decode(words.w[step / 4][step % 4], a);
    mma(d, a, x.b[step / 4][step % 4][0], x.b[step / 4][step % 4][1]);
  }
  // Lane `quad` has groups 2 * quad and 2 * quad + 1 of two rows. Neighbours swap, so that each ends with one row.
  using Sum = std::conditional_t<kExact, double, float>;
  const u32 scales = words.scales.x;
  const Sum low = Sum{d[0]} * scale_f32<0>(scales), high = Sum{d[2]} * scale_f32<2>(scales);
  Sum low_sum, high_sum;
  if constexpr (kExact) {
    low_sum = fma(double{d[1]}, double{scale_f32<1>(scales)}, low);
    high_sum = fma(double{d[3]}, double{scale_f32<3>(scales)}, high);
  } else {
    low_sum = __fmaf_rn(d[1], scale_f32<1>(scales), low);
    high_sum = __fmaf_rn(d[3], scale_f32<3>(scales), high);
  }
  const bool is_odd = (lane & 1) != 0;
  const Sum other = __shfl_xor_sync(kAllLanes, is_odd ? low_sum : high_sum, 1);
  store_shared4(sums, static_cast<float>((is_odd ? high_sum : low_sum) + other));
}
// Where a lane's sum goes.
__device__ inline u32 one_row_offset(int lane) {
  const u32 row = tile_row(lane / 4) + ((lane & 1) != 0 ? kLaneRows : 0);
  return (row * Shape<1>::kRowStride + (lane >> 1 & 1)) * sizeof(float);
}

// Up to eight or sixteen rows of one block, the scales folded into the weights.
template <int kColumnTiles>
__device__ inline void multiply_block(const u32 (&words)[4], u32 scales01, u32 scales23,
                                      const uint4 (&x)[4 * kColumnTiles], int block, float (&d)[kColumnTiles][4]) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const u32 scales = step < 2 ? scales01 : scales23;
    u32 a[4];
    decode(words[step], a);
    fold_scales(a, scale_pair<0>(scales), scale_pair<2>(scales));
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      const uint4 piece = x[j * 4 + block * 2 + step / 2];
      mma(d[j], a, step % 2 == 0 ? piece.x : piece.z, step % 2 == 0 ? piece.y : piece.w);
    }
  }
}

// The same group by group, added in f64: exact for any scales.
template <int kColumnTiles>
__device__ inline void multiply_block_exactly(const u32 (&words)[4], u32 scales01, u32 scales23,
                                              const uint4 (&x)[4 * kColumnTiles], int block,
                                              float (&d)[kColumnTiles][4]) {
  constexpr u32 kFirst = 0x00FF00FFu, kSecond = 0xFF00FF00u;  // of the two groups of a word, in both rows
  double total[kColumnTiles][4] = {};
#pragma unroll 1
  for (int group = 0; group < 4; ++group) {
    const u32 mask = group % 2 == 0 ? kFirst : kSecond;
    float part[kColumnTiles][4] = {};
    multiply_block<kColumnTiles>(words, group < 2 ? scales01 & mask : 0, group < 2 ? 0 : scales23 & mask, x, block,
                                 part);
#pragma unroll
    for (int i = 0; i < 4 * kColumnTiles; ++i) total[i / 4][i % 4] += part[i / 4][i % 4];
  }
#pragma unroll
  for (int i = 0; i < 4 * kColumnTiles; ++i) d[i / 4][i % 4] = static_cast<float>(total[i / 4][i % 4]);
}

template <int kColumnTiles, bool kExact>
__device__ inline void multiply_rows(const Words& words, const uint4 (&x)[4 * kColumnTiles], u32 sums, int lane) {
  const u32 scales[2][2] = {{words.scales.x, words.scales.y}, {words.scales.z, words.scales.w}};
  const u32 to = sums + (tile_row(lane / 4) * kColumns + lane % 4 * 2) * sizeof(float);
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    float d[kColumnTiles][4] = {};
    if constexpr (kExact) {
      multiply_block_exactly<kColumnTiles>(words.w[block], scales[block][0], scales[block][1], x, block, d);
    } else {
      multiply_block<kColumnTiles>(words.w[block], scales[block][0], scales[block][1], x, block, d);
    }
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      const u32 at = to + (block * kColumnTiles + j) * kTileRows * kColumns * sizeof(float);
      store_shared8(at, d[j][0], d[j][1]);
      store_shared8(at + kLaneRows * kColumns * sizeof(float), d[j][2], d[j][3]);
    }
  }
}

template <int kTokens>
struct Compute {
  using S = Shape<kTokens>;
  const Shared<kTokens>& shared;
  const Problem& p;
  int n_tiles, warp, lane;
  u32 base;  // of shared

  // The buffers of sums in turn. A buffer is claimed when the chain has drained it, and published once the warp has met
  // after writing it.
  struct Published {
    u32 at;      // where this warp writes
    u32 first;   // of all buffers
    u32 filled;  // barrier of this buffer; that of drained ones lies kSumBuffers * 8 further on
    u32 parity = 1;

    __device__ Published(u32 base, int warp, int lane)
        : at(base + offsetof(Shared<kTokens>, sums) +
             warp * 2 * (kTokens == 1 ? 1 : kTileRows * kTokens) * sizeof(float) +
             (kTokens == 1 ? one_row_offset(lane) : 0)),
          first(at),
          filled(base + offsetof(Shared<kTokens>, filled)) {}
    __device__ void publish(int lane) const {
      if (lane == 0) barrier_arrive(filled);
    }
    __device__ void claim() const { barrier_wait(filled + S::kSumBuffers * 8, parity); }
    __device__ void next() {
      constexpr u32 kBytes = S::kUnits * S::kSums * sizeof(float);
      at += kBytes;
      filled += 8;
      if (at < first + S::kSumBuffers * kBytes) return;
      at = first;
      filled -= S::kSumBuffers * 8;
      parity ^= 1;
    }
  };

  // Where the units of a pass come from.
  struct Source {
    u32 tiles;  // shared memory: addresses of the tiles of the pass
    int n;
    u32 offset;  // of the unit in its tile, and of the lane in the unit
    // Starts the copies of a step, as many of its units as there are in the pass, to consecutive slots.
    template <int kHere>
    __device__ void start(int tile, u32 to, int lane) const {
      u64 from[kHere];
#pragma unroll
      for (int u = 0; u < kHere; ++u)
        from[u] = load_shared8(tiles + (tile + u) * 8) + offset;  // beyond the list: unused
#pragma unroll
      for (int u = 0; u < kHere; ++u) {
        const bool wanted = tile + u < n;
        const u32 at = to + u * kUnitBytes + lane * 16;
        copy_async16_if(wanted, at, from[u]);
        copy_async16_if(wanted, at + 512, from[u] + 512);
        copy_async16_if(wanted && lane < (kUnitBytes - 1024) / 16, at + 1024, from[u] + 1024);
      }
      commit_copies();
    }
  };
  __device__ Source source(const Passes<S::kRingUnits>& pass) const {
    return {base + static_cast<u32>(offsetof(Shared<kTokens>, units)) + pass.first * 8, static_cast<int>(pass.tiles()),
            static_cast<u32>((pass.round * kWarps + warp) * kUnitBytes + lane * 16)};
  }

  __device__ void multiply(const Words& words, const Activations<kTokens>& x, const OneRow& one_row, u32 sums,
                           bool exact) const {
    if constexpr (kTokens == 1) {
      if (exact) {
        multiply_one_row<true>(words, one_row, sums, lane);
      } else {
        multiply_one_row<false>(words, one_row, sums, lane);
      }
    } else {
      if (exact) {
        multiply_rows<S::kColumnTiles, true>(words, x.pieces, sums, lane);
      } else {
        multiply_rows<S::kColumnTiles, false>(words, x.pieces, sums, lane);
      }
    }
  }

  // Waits until the units of the oldest of `steps` steps on their way are there.
  static __device__ void wait_for_oldest(u32 steps) {
    if (steps == 4) {
      wait_copies<3>();
    } else if (steps == 5) {
      wait_copies<4>();
    } else if (steps >= 8) {
      wait_copies<7>();
    } else if (steps >= 6) {
      wait_copies<5>();
    } else {
      wait_copies<2>();  // 3, the fewest
    }
  }

  // One pair of kHere tiles: sums of this round's pair, and the copies of a later pass into the slots that fall free.
  template <int kHere, bool kMixed>
  __device__ void step(const Activations<kTokens>& x, const OneRow& one_row, const Source& ahead, u32 steps, int tile,
                       u32 slot, const std::uint8_t* is_exact, Published& sums) const {
    wait_for_oldest(steps);
    __syncwarp();  // the copies of all lanes have landed
    Words words[kHere];
#pragma unroll
    for (int u = 0; u < kHere; ++u) words[u] = load_words<kTokens == 1>(slot + u * kUnitBytes, lane);
    sums.claim();
#pragma unroll
    for (int u = 0; u < kHere; ++u) {
      multiply(words[u], x, one_row, sums.at + u * S::kSums * static_cast<u32>(sizeof(float)),
               kMixed && is_exact[tile + u] != 0);
    }
    __syncwarp();  // the words are read, the sums are written
    sums.publish(lane);
    ahead.template start<kHere>(tile, slot, lane);
  }

  // kMixed: some tile of this block of threads takes the exact route.
  template <bool kMixed>
  __device__ void run() const {
    const u32 n_rounds = (p.n_pairs + kWarps - 1) / kWarps;
    const u32 my_rounds = (p.n_pairs - warp + kWarps - 1) / kWarps;  // n_rounds or one less
    const Groups<S::kRingUnits> groups(n_tiles);
    const u32 widest = groups.size(0);
    const u32 lookahead = S::kRingUnits / widest;  // passes
    const u32 ring = base + offsetof(Shared<kTokens>, ring) + warp * S::kRingUnits * kUnitBytes;
    Passes<S::kRingUnits> ahead(groups, my_rounds);
    for (u32 i = 0; i < lookahead; ++i, ahead.next()) {
      const Source from = source(ahead);
      for (u32 tile = 0; tile < widest; tile += S::kUnits) {
        from.template start<S::kUnits>(tile, ring + (i * widest + tile) * kUnitBytes, lane);
      }
    }
    wait_for_predecessors();

    const int first_row = blockIdx.y * kNvfp4GemvRows;
    Activations<kTokens> next = {};
    if (my_rounds > 0) next.load(p, first_row, warp, lane / 4, lane % 4);
    Published sums(base, warp, lane);
    for (u32 group = 0, first = 0; group < groups.n; first += groups.size(group++)) {
      const int group_tiles = groups.size(group);
      const u32 steps = (group_tiles + S::kUnits - 1) / S::kUnits;
      const u32 ring_end = ring + lookahead * group_tiles * kUnitBytes;
      u32 slot = ring;  // where there is a second group, a pass has gone once around
      for (u32 round = 0; round < my_rounds; ++round, ahead.next()) {
        const Activations<kTokens> x = next;
        const u32 following = round + 1 < my_rounds ? round + 1 : 0;
        if (my_rounds > 1) next.load(p, first_row, following * kWarps + warp, lane / 4, lane % 4);
        OneRow one_row;
        if constexpr (kTokens == 1) one_row.set(x.pieces[0], lane / 4);
        const Source from = source(ahead);
        int tile = 0;
        for (; tile + S::kUnits <= group_tiles; tile += S::kUnits) {
          step<S::kUnits, kMixed>(x, one_row, from, lookahead * steps, tile, slot, shared.is_exact + first, sums);
          slot += S::kUnits * kUnitBytes;
          sums.next();
        }
        if (tile < group_tiles) {
          step<1, kMixed>(x, one_row, from, lookahead * steps, tile, slot, shared.is_exact + first, sums);
          slot += kUnitBytes;
          sums.next();
        }
        if (slot == ring_end) slot = ring;
      }
      for (u32 idle = my_rounds * steps; idle < n_rounds * steps; ++idle) {
        sums.claim();
        __syncwarp();
        sums.publish(lane);
        sums.next();
      }
    }
  }
};

// acc = fma(f32(S), c, acc) for every block of a tile in a round: for one row, of the weight row of this lane.
// kWide: factors too large to take up the unit of the sums.
template <int kTokens, bool kWide>
__device__ inline float chain_block(float sum, float factor, float acc) {
  return __fmaf_rn(kWide ? sum * Shape<kTokens>::kSumUnit : sum, factor, acc);
}
template <bool kWide>
__device__ inline float chain_one_row(const float* sums, const float (*factors)[1], int n_blocks, float acc, int lane) {
  const float* row = sums + lane % kTileRows * Shape<1>::kRowStride;
  float4 s[kRoundBlocks / 4], c[kRoundBlocks / 4];
#pragma unroll
  for (int i = 0; i < kRoundBlocks / 4; ++i) {
    s[i] = reinterpret_cast<const float4*>(row)[i];
    c[i] = reinterpret_cast<const float4*>(factors)[i];
  }
#pragma unroll
  for (int i = 0; i < kRoundBlocks / 4; ++i) {
    if (i * 4 < n_blocks) {  // blocks come in pairs, and a pair that is not there has no sums
      acc = chain_block<1, kWide>(s[i].x, c[i].x, acc);
      acc = chain_block<1, kWide>(s[i].y, c[i].y, acc);
    }
    if (i * 4 + 2 < n_blocks) {
      acc = chain_block<1, kWide>(s[i].z, c[i].z, acc);
      acc = chain_block<1, kWide>(s[i].w, c[i].w, acc);
    }
  }
  return acc;
}

// The same for eight or sixteen rows: a lane owns four of a weight row in each tile of columns.
template <int kColumnTiles, bool kWide>
__device__ inline void chain_rows(const float* sums, const float (*factors)[kColumnTiles * kColumns], int n_blocks,
                                  float4 (&acc)[kColumnTiles], int lane) {
#pragma unroll 8
  for (int b = 0; b < n_blocks; ++b) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      const float4 s = reinterpret_cast<const float4*>(sums)[(b * kColumnTiles + j) * kWarp + lane];
      const float4 c = reinterpret_cast<const float4*>(factors[b])[j * 2 + lane % 2];
      acc[j].x = chain_block<kColumnTiles * kColumns, kWide>(s.x, c.x, acc[j].x);
      acc[j].y = chain_block<kColumnTiles * kColumns, kWide>(s.y, c.y, acc[j].y);
      acc[j].z = chain_block<kColumnTiles * kColumns, kWide>(s.z, c.z, acc[j].z);
      acc[j].w = chain_block<kColumnTiles * kColumns, kWide>(s.w, c.w, acc[j].w);
    }
  }
}

// One warp of the chain: runs through the tiles whose index in their group is its own modulo the number of such warps.
template <int kTokens>
struct Chain {
  using S = Shape<kTokens>;
  static constexpr int kFactors = (kRoundBlocks * kTokens + kWarp - 1) / kWarp;  // of a lane in a round
  using Acc = std::conditional_t<kTokens == 1, float, float4[S::kColumnTiles]>;
  Shared<kTokens>& shared;
  const Problem& p;
  int n_tiles;
  u32 chain;
  int lane;
  u32 base;  // of shared

  __device__ void load_factors(int round, float (&d)[kFactors]) const {
    const int first_row = blockIdx.y * kNvfp4GemvRows;
#pragma unroll
    for (int i = 0; i < kFactors; ++i) {
      const int index = i * kWarp + lane, row = first_row + index % kTokens;
      const int block = round * kRoundBlocks + index / kTokens;
      const bool is_inside = index < kRoundBlocks * kTokens && block < 2 * p.n_pairs && row < p.n_rows;
      d[i] = is_inside ? p.d[static_cast<std::size_t>(block) * p.d_stride + row] : 0.0f;
    }
  }

  // c = d * g, one rounding, for each segment, in the unit of the sums unless one would overflow. Returns if one would.
  __device__ bool set_factors(const float (&d)[kFactors]) const {
    constexpr float kLargest = 0x1p127f / S::kSumUnit;
    bool is_wide = false;
    for (int s = 0; s < p.n_segments; ++s) {
      const float g = p.segments[s].g;
#pragma unroll
      for (int i = 0; i < kFactors; ++i) is_wide |= !(d[i] * g < kLargest);
    }
    is_wide = __any_sync(kAllLanes, is_wide);
    const float unit = is_wide ? 1.0f : S::kSumUnit;
    for (int s = 0; s < p.n_segments; ++s) {
      const float g = p.segments[s].g;
#pragma unroll
      for (int i = 0; i < kFactors; ++i) {
        const int index = i * kWarp + lane;
        if (index < kRoundBlocks * kTokens) (&shared.factors[chain][s][0][0])[index] = (d[i] * g) * unit;
      }
    }
    __syncwarp();
    return is_wide;
  }

  __device__ void load_acc(int tile, bool is_first, Acc& acc) const {
    if constexpr (kTokens == 1) {
      acc = is_first ? 0.0f : shared.acc[tile][lane % kTileRows];
    } else {
#pragma unroll
      for (int j = 0; j < S::kColumnTiles; ++j) {
        acc[j] =
            is_first ? make_float4(0, 0, 0, 0) : reinterpret_cast<const float4*>(shared.acc[tile])[j * kWarp + lane];
      }
    }
  }
  __device__ void store_acc(int tile, const Acc& acc) const {
    if constexpr (kTokens == 1) {
      shared.acc[tile][lane % kTileRows] = acc;  // both halves of the warp have the same
    } else {
#pragma unroll
      for (int j = 0; j < S::kColumnTiles; ++j) reinterpret_cast<float4*>(shared.acc[tile])[j * kWarp + lane] = acc[j];
    }
  }

  template <bool kWide>
  __device__ void run_blocks(const float* sums, int tile, int n_blocks, Acc& acc) const {
    const auto* factors = shared.factors[chain][shared.segment[tile]];
    if constexpr (kTokens == 1) {
      acc = chain_one_row<kWide>(sums, factors, n_blocks, acc, lane);
    } else {
      chain_rows<S::kColumnTiles, kWide>(sums, factors, n_blocks, acc, lane);
    }
  }

  __device__ void write(int tile, const Acc& acc) const {
    const Segment& segment = p.segments[shared.segment[tile]];
    const int row = shared.tile[tile] * kTileRows + (kTokens == 1 ? lane : lane / 2);
    if (row >= segment.n_out || (kTokens == 1 && lane >= kTileRows)) return;
    const int first = blockIdx.y * kNvfp4GemvRows;
    const float bias = segment.bias != nullptr ? segment.bias[row] : 0.0f;
    const auto put = [&](int token, float value) {
      if (token >= p.n_rows) return;
      segment.out[static_cast<std::size_t>(token) * segment.out_stride + row] =
          segment.bias != nullptr ? value + bias : value;
    };
    if constexpr (kTokens == 1) {
      put(first, acc);
    } else {
#pragma unroll
      for (int j = 0; j < S::kColumnTiles; ++j) {
        const int token = first + j * kColumns + lane % 2 * 4;
        put(token, acc[j].x);
        put(token + 1, acc[j].y);
        put(token + 2, acc[j].z);
        put(token + 3, acc[j].w);
      }
    }
  }

  __device__ void run() const {
    const int n_rounds = (p.n_pairs + kWarps - 1) / kWarps;
    wait_for_predecessors();
    float d[kFactors];
    load_factors(0, d);
    u32 buffer = 0, parity = 0;
    const Groups<S::kRingUnits> groups(n_tiles);
    for (u32 group = 0, first = 0; group < groups.n; first += groups.size(group++)) {
      const u32 group_tiles = groups.size(group);
      for (int round = 0; round < n_rounds; ++round) {
        __syncwarp();
        const bool is_wide = set_factors(d);
        if (n_rounds > 1) load_factors(round + 1 < n_rounds ? round + 1 : 0, d);
        const int n_blocks = min(kRoundBlocks, 2 * p.n_pairs - round * kRoundBlocks);
        for (u32 tile = 0; tile < group_tiles; tile += S::kUnits) {
          // Every warp of the chain sees every buffer go by, its own or not: a barrier's phases cannot run away from
          // it.
          constexpr bool kOneEach = S::kUnits == S::kChains;
          const u32 mine = kOneEach ? tile + chain : tile;
          const bool is_mine = kOneEach ? mine < group_tiles : tile % S::kChains == chain;
          Acc acc;
          if (is_mine) load_acc(mine, round == 0, acc);
          barrier_wait(base + offsetof(Shared<kTokens>, filled) + buffer * 8, parity);
          if (is_mine) {
            const float* sums = shared.sums[buffer][kOneEach ? chain : 0];
            if (is_wide) {
              run_blocks<true>(sums, first + mine, n_blocks, acc);
            } else {
              run_blocks<false>(sums, first + mine, n_blocks, acc);
            }
          }
          __syncwarp();
          if (lane == 0) barrier_arrive(base + offsetof(Shared<kTokens>, drained) + buffer * 8);
          if (is_mine) {
            if (round + 1 == n_rounds) {
              write(first + mine, acc);
            } else {
              store_acc(mine, acc);
            }
          }
          if (++buffer == S::kSumBuffers) {
            buffer = 0;
            parity ^= 1;
          }
        }
      }
    }
  }
};

template <int kTokens>
__global__ void __launch_bounds__(Shape<kTokens>::kThreads, Shape<kTokens>::kBlocksPerMultiprocessor)
    gemv_kernel(const __grid_constant__ Problem p, bool only_exact) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  Shared<kTokens>& shared = *reinterpret_cast<Shared<kTokens>*>(memory);
  int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  keep(warp);
  keep(lane);
  let_successors_start();
  u32 base = shared_address(&shared);
  keep(base);
  if (threadIdx.x == 0) {
    shared.has_exact = 0;
    for (int i = 0; i < Shape<kTokens>::kSumBuffers; ++i) {
      barrier_init(base + offsetof(Shared<kTokens>, filled) + i * 8, kWarps);
      barrier_init(base + offsetof(Shared<kTokens>, drained) + i * 8, Shape<kTokens>::kChains);
    }
  }
  __syncthreads();
  const int n_tiles = list_tiles(p, only_exact, shared);
  __syncthreads();
  if (n_tiles == 0) return;
  if (warp >= kWarps) {
    Chain<kTokens>{shared, p, n_tiles, static_cast<u32>(warp - kWarps), lane, base}.run();
  } else {
    const Compute<kTokens> compute{shared, p, n_tiles, warp, lane, base};
    if (shared.has_exact != 0) {
      compute.template run<true>();
    } else {
      compute.template run<false>();
    }
  }
}

template <int kTokens>
cudaError_t launch(const Problem& p, const Device& device, bool only_exact, cudaStream_t stream) {
  int n_tiles = 0;
  for (int s = 0; s < p.n_segments; ++s) n_tiles += p.segments[s].n_tiles;
  constexpr int kBytes = static_cast<int>(sizeof(Shared<kTokens>));
  cudaError_t error = cudaFuncSetAttribute(gemv_kernel<kTokens>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int grid = std::max(std::min(n_tiles, device.n_multiprocessors), (n_tiles + kMaxTiles - 1) / kMaxTiles);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid, (p.n_rows + kNvfp4GemvRows - 1) / kNvfp4GemvRows);
  config.blockDim = Shape<kTokens>::kThreads;
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = device.capability >= 90 ? 1 : 0;
  return cudaLaunchKernelEx(&config, gemv_kernel<kTokens>, p, only_exact);
}

}  // namespace

cudaError_t launch_gemv(const Problem& p, const Device& device, bool only_exact, cudaStream_t stream) {
  if (p.n_rows == 1) return launch<1>(p, device, only_exact, stream);
  if (p.n_rows <= kColumns) return launch<8>(p, device, only_exact, stream);
  return launch<16>(p, device, only_exact, stream);
}

}  // namespace nibble::kernels::cuda::nvfp4
