// The producers of the wgmma gemm: a warp that copies tokens, one that copies packed weights, and warps that decode
// weights to swizzled shared memory, scales folded in.
#pragma once

#include "kernels/cuda/linear_nvfp4_gemm_sm90_shape.cuh"

namespace nibble::kernels::cuda::nvfp4 {

// One more stage, with nothing in it: consumers look after the block to come and need not know which is the last.
template <int kTiles>
__device__ void end_stages(u32 base, int lane, const Turn<kStages>& stage) {
  barrier_wait(NIBBLE_AT(base, empty) + stage.index * 8, stage.parity ^ 1);
  if (lane == 0) barrier_arrive(NIBBLE_AT(base, full) + stage.index * 8);
}

// The warp that copies tokens, as soon as a stage is empty.
template <typename Contract, int kTiles>
struct TokenCopier {
  const Problem& p;
  const CUtensorMap* map;
  const Schedule<kTiles, Contract::kPairs>& schedule;
  u32 base;
  int lane;

  __device__ void run() const {
    wait_for_predecessors();
    Turn<kStages> stage;
    for (int i = 0; i < schedule.size(); ++i) {
      const Piece piece = schedule.at(p, i);
      const float* d = p.d + static_cast<std::size_t>(2 * piece.first_pair) * p.d_stride + piece.first_token;
      for (int block = 2 * piece.first_pair; block < 2 * piece.end_pair; ++block) {
        barrier_wait(NIBBLE_AT(base, empty) + stage.index * 8, stage.parity ^ 1);
        if (lane == 0) {
          const u32 full = NIBBLE_AT(base, full) + stage.index * 8;
          barrier_expect(full, kTokenBytes + (Contract::kFree ? 0 : kFactorBytes));
          copy_tensor(NIBBLE_AT(base, tokens) + stage.index * kTokenBytes, map, block * kBlock, piece.first_token,
                      full);
          if constexpr (!Contract::kFree)
            copy_bulk(NIBBLE_AT(base, d) + stage.index * kFactorBytes, d, kFactorBytes, full);
        }
        __syncwarp();
        d += p.d_stride;
        stage.next();
      }
    }
    end_stages<kTiles>(base, lane, stage);
  }
};

// The warp that copies packed weights, as far ahead as there is room. Not the one that copies tokens: they would come
// late where it waits until weights have been decoded.
template <typename Contract, int kTiles>
struct WeightCopier {
  const Problem& p;
  const Schedule<kTiles, Contract::kPairs>& schedule;
  u32 base;
  int lane;

  __device__ void run() const {
    Turn<kRingPairs> pair;
    for (int i = 0; i < schedule.size(); ++i) {
      const Piece piece = schedule.at(p, i);
      const Segment& segment = p.segments[piece.segment];
      // Lane j has row tile j. Beyond the last one: computed, not written.
      const int row_tile = min(piece.first_tile + min(lane, kTiles - 1), segment.n_tiles - 1);
      const std::uint8_t* unit =
          segment.units + (static_cast<std::size_t>(row_tile) * p.n_pairs + piece.first_pair) * kUnitBytes;
      for (int k = piece.first_pair; k < piece.end_pair; ++k, pair.next(), unit += kUnitBytes) {
        const u32 full = NIBBLE_AT(base, ring_full) + pair.index * 8;
        barrier_wait(NIBBLE_AT(base, ring_empty) + pair.index * 8, pair.parity ^ 1);
        if (lane == 0) barrier_expect(full, kTiles * kUnitBytes);
        __syncwarp();
        if (lane < kTiles) {
          copy_bulk(NIBBLE_AT(base, ring) + (pair.index * kTiles + lane) * kUnitBytes, unit, kUnitBytes, full);
        }
      }
    }
  }
};

// A warp that decodes its row tiles of every block. Words of a tile are loaded while the tile before is stored.
template <typename Contract, int kTiles>
struct Decoder {
  static constexpr int kWarpTiles = kTiles / kDecoders;
  static constexpr int kTileBytes = kTileRows * kRowBytes;
  static_assert(kTiles % kDecoders == 0);
  const Problem& p;
  const Schedule<kTiles, Contract::kPairs>& schedule;
  u32 base;
  int first_tile, lane;

  struct Words {
    uint4 codes;
    u64 scales;
  };
  // To rows of shared memory: 16-byte piece i of row r lies at i ^ r % 8. `to` is where the first piece of the lane's
  // first row goes; its second row is two further, its second piece four.
  static __device__ void store(const Words& w, u32 to) {
    constexpr u32 kTwoRows = 2 * kRowBytes, kTwoPieces = 2 * 16, kFourPieces = 4 * 16;
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
      const u32 s = static_cast<u32>(half == 0 ? w.scales : w.scales >> 32);
      u32 a[4], b[4];
      decode(half == 0 ? w.codes.x : w.codes.z, a);
      decode(half == 0 ? w.codes.y : w.codes.w, b);
      fold_scales(a, scale_pair<0>(s), scale_pair<2>(s));
      fold_scales(b, scale_pair<0>(s), scale_pair<2>(s));
      const u32 piece = to ^ half * kFourPieces;
      store_shared16(piece, a[0], a[2], b[0], b[2]);
      store_shared16((piece ^ kTwoPieces) + kTwoRows, a[1], a[3], b[1], b[3]);
    }
  }

  __device__ void run() const {
    const u32 row = shared_row(tile_row(lane / 4));
    static_assert(shared_row(tile_row(8)) == 2 && shared_row(tile_row(15)) == shared_row(tile_row(7)) + 2);
    u32 first = NIBBLE_AT(base, weights) + (first_tile * kTileRows + row) * kRowBytes + (lane % 4 ^ row % 8) * 16;
    u32 codes = NIBBLE_AT(base, ring) + first_tile * kUnitBytes + lane * 16;
    u32 scales = NIBBLE_AT(base, ring) + first_tile * kUnitBytes + kUnitCodeBytes + lane / 4 * 16;
    keep(first);
    keep(codes);
    keep(scales);
    int pairs_left = 0;
    for (int i = 0; i < schedule.size(); ++i) {
      const Piece piece = schedule.at(p, i);
      pairs_left += piece.end_pair - piece.first_pair;
    }
    Turn<kStages> stage;
    Turn<kRingPairs> pair;
    for (; pairs_left > 0; --pairs_left) {
      barrier_wait(NIBBLE_AT(base, ring_full) + pair.index * 8, pair.parity);
#pragma unroll
      for (u32 block = 0; block < 2; ++block) {
        const u32 unit = pair.index * kTiles * kUnitBytes;
        const u32 to = first + stage.index * GemmShared<kTiles>::kWeightBytes;
        const auto load = [&](int i) -> Words {
          return {load_shared16(codes + unit + i * kUnitBytes + block * kBlockCodeBytes),
                  load_shared8(scales + unit + i * kUnitBytes + block * 8)};
        };
        Words next = load(0);
        barrier_wait(NIBBLE_AT(base, empty) + stage.index * 8, stage.parity ^ 1);
#pragma unroll
        for (int i = 0; i < kWarpTiles; ++i) {
          const Words words = next;
          if (i + 1 < kWarpTiles) next = load(i + 1);
          store(words, to + i * kTileBytes);
        }
        fence_async_proxy();
        __syncwarp();  // and every lane has used what it read of the ring
        if (lane == 0) barrier_arrive(NIBBLE_AT(base, full) + stage.index * 8);
        stage.next();
      }
      if (lane == 0) barrier_arrive(NIBBLE_AT(base, ring_empty) + pair.index * 8);
      pair.next();
    }
    end_stages<kTiles>(base, lane, stage);
  }
};

}  // namespace nibble::kernels::cuda::nvfp4
