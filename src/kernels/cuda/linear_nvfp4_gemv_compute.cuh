// A compute warp of the NVFP4 gemv: exact sums of blocks.
#pragma once

#include <type_traits>

#include "kernels/cuda/linear_nvfp4_gemv_shape.cuh"

namespace nibble::kernels::cuda::nvfp4 {

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

// What column `m` sees of a pair, in the lane of a quarter.
__device__ inline uint4 load_piece(const Problem& p, int pair, int m, int quad) {
  return *reinterpret_cast<const uint4*>(p.q + pair * kNvfp4Pair + m / 2 * 32 + quad * 8);
}

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
    mma_f16(d, a, x.b[step / 4][step % 4][0], x.b[step / 4][step % 4][1]);
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
  return (row * Shape::kRowStride + (lane >> 1 & 1)) * sizeof(float);
}

// Up to eight or sixteen rows of one block, the scales folded into the weights. kFree: the sums may round.
template <int kColumnTiles, bool kFree = false>
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
      add_products<kFree>(d[j], a, step % 2 == 0 ? piece.x : piece.z, step % 2 == 0 ? piece.y : piece.w);
    }
  }
}

// The same group by group, added in f64: exact for any scales.
template <int kColumnTiles>
__device__ inline void add_block_exactly(const u32 (&words)[4], u32 scales01, u32 scales23,
                                         const uint4 (&x)[4 * kColumnTiles], int block,
                                         double (&total)[kColumnTiles][4]) {
  constexpr u32 kFirst = 0x00FF00FFu, kSecond = 0xFF00FF00u;  // of the two groups of a word, in both rows
#pragma unroll 1
  for (int group = 0; group < 4; ++group) {
    const u32 mask = group % 2 == 0 ? kFirst : kSecond;
    float part[kColumnTiles][4] = {};
    multiply_block<kColumnTiles>(words, group < 2 ? scales01 & mask : 0, group < 2 ? 0 : scales23 & mask, x, block,
                                 part);
#pragma unroll
    for (int i = 0; i < 4 * kColumnTiles; ++i) total[i / 4][i % 4] += part[i / 4][i % 4];
  }
}
template <int kColumnTiles>
__device__ inline void multiply_block_exactly(const u32 (&words)[4], u32 scales01, u32 scales23,
                                              const uint4 (&x)[4 * kColumnTiles], int block,
                                              float (&d)[kColumnTiles][4]) {
  double total[kColumnTiles][4] = {};
  add_block_exactly<kColumnTiles>(words, scales01, scales23, x, block, total);
#pragma unroll
  for (int i = 0; i < 4 * kColumnTiles; ++i) d[i / 4][i % 4] = static_cast<float>(total[i / 4][i % 4]);
}

struct Compute {
  using S = Shape;
  const Shared& shared;
  const Problem& p;
  int n_tiles, warp, lane;
  u32 base;  // of shared
  u32 ring_units;

  // The buffers of sums in turn. A buffer is claimed when the chain has drained it, and published once the warp has met
  // after writing it.
  struct Published {
    u32 at;      // where this warp writes
    u32 first;   // of all buffers
    u32 filled;  // barrier of this buffer; that of drained ones lies kSumBuffers * 8 further on
    u32 parity = 1;

    __device__ Published(u32 base, int warp, int lane)
        : at(base + offsetof(Shared, sums) + warp * 2 * sizeof(float) + one_row_offset(lane)),
          first(at),
          filled(base + offsetof(Shared, filled)) {}
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
        copy_16_if(wanted, at, from[u]);
        copy_16_if(wanted, at + 512, from[u] + 512);
        copy_16_if(wanted && lane < (kUnitBytes - 1024) / 16, at + 1024, from[u] + 1024);
      }
      commit_copies();
    }
  };
  __device__ Source source(const Passes& pass) const {
    return {base + static_cast<u32>(offsetof(Shared, units)) + pass.first * 8, static_cast<int>(pass.tiles()),
            static_cast<u32>((pass.round * kWarps + warp) * kUnitBytes + lane * 16)};
  }

  __device__ void multiply(const Words& words, const OneRow& x, u32 sums, bool exact) const {
    if (exact) {
      multiply_one_row<true>(words, x, sums, lane);
    } else {
      multiply_one_row<false>(words, x, sums, lane);
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
    } else if (steps == 3) {
      wait_copies<2>();
    } else if (steps == 2) {
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
  }

  // One pair of kHere tiles: sums of this round's pair, and the copies of a later pass into the slots that fall free.
  template <int kHere, bool kMixed>
  __device__ void step(const OneRow& x, const Source& ahead, u32 steps, int tile, u32 slot,
                       const std::uint8_t* is_exact, Published& sums) const {
    wait_for_oldest(steps);
    __syncwarp();  // the copies of all lanes have landed
    Words words[kHere];
#pragma unroll
    for (int u = 0; u < kHere; ++u) words[u] = load_words<true>(slot + u * kUnitBytes, lane);
    sums.claim();
#pragma unroll
    for (int u = 0; u < kHere; ++u) {
      multiply(words[u], x, sums.at + u * S::kSums * static_cast<u32>(sizeof(float)),
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
    const Groups groups(n_tiles, ring_units);
    const u32 widest = groups.size(0);
    const u32 lookahead = ring_units / widest;  // passes
    const u32 ring = base + static_cast<u32>(sizeof(Shared)) + warp * ring_units * kUnitBytes;
    Passes ahead(groups, my_rounds);
    for (u32 i = 0; i < lookahead; ++i, ahead.next()) {
      const Source from = source(ahead);
      for (u32 tile = 0; tile < widest; tile += S::kUnits) {
        from.template start<S::kUnits>(tile, ring + (i * widest + tile) * kUnitBytes, lane);
      }
    }
    wait_for_predecessors();

    uint4 next = {};
    if (my_rounds > 0) next = load_piece(p, warp, lane / 4, lane % 4);
    Published sums(base, warp, lane);
    for (u32 group = 0, first = 0; group < groups.n; first += groups.size(group++)) {
      const int group_tiles = groups.size(group);
      const u32 steps = (group_tiles + S::kUnits - 1) / S::kUnits;
      const u32 ring_end = ring + lookahead * group_tiles * kUnitBytes;
      u32 slot = ring;  // where there is a second group, a pass has gone once around
      for (u32 round = 0; round < my_rounds; ++round, ahead.next()) {
        const uint4 piece = next;
        const u32 following = round + 1 < my_rounds ? round + 1 : 0;
        if (my_rounds > 1) next = load_piece(p, following * kWarps + warp, lane / 4, lane % 4);
        OneRow x;
        x.set(piece, lane / 4);
        const Source from = source(ahead);
        int tile = 0;
        for (; tile + S::kUnits <= group_tiles; tile += S::kUnits) {
          step<S::kUnits, kMixed>(x, from, lookahead * steps, tile, slot, shared.is_exact + first, sums);
          slot += S::kUnits * kUnitBytes;
          sums.next();
        }
        if (tile < group_tiles) {
          step<1, kMixed>(x, from, lookahead * steps, tile, slot, shared.is_exact + first, sums);
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

}  // namespace nibble::kernels::cuda::nvfp4
