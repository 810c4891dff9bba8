// The wgmma gemm's tiles: how they lie in shared memory, and which thread block makes which.
#pragma once

#include "kernels/cuda/linear_nvfp4_launch.h"
#include "kernels/cuda/wgmma_sm90.cuh"

namespace nibble::kernels::cuda::nvfp4 {

constexpr int kWarpgroup = 128;
constexpr int kConsumers = 2;  // warpgroups
constexpr int kProducers = 2;  // warpgroups
constexpr int kDecoders = 4;   // warps: one beside each warp of a consumer, so that none of them is held up more
constexpr int kTokenCopier = 6, kWeightCopier = 7;  // the other warps that produce
constexpr int kGemmThreads = (kProducers + kConsumers) * kWarpgroup;
constexpr int kTokens = kConsumers * 64;
constexpr int kStages = 4;
constexpr int kRingPairs = 3;          // of weights as they come from memory
constexpr int kRasterGroups = 8;       // of rows that go through the tokens together, for the L2 cache
constexpr int kRowBytes = kBlock * 2;  // of f16 in shared memory: the width of the 128-byte swizzle
constexpr int kTokenBytes = kTokens * kRowBytes;
constexpr int kFactorBytes = kTokens * static_cast<int>(sizeof(float));

// kTiles: row tiles of 16, 8 or 12.
template <int kTiles>
struct GemmShared {
  static constexpr int kWeightBytes = kTiles * kTileRows * kRowBytes;
  alignas(1024) std::uint8_t tokens[kStages][kTokenBytes];
  alignas(1024) std::uint8_t weights[kStages][kWeightBytes];
  alignas(128) std::uint8_t ring[kRingPairs][kTiles][kUnitBytes];
  alignas(16) float d[kStages][kTokens];
  u64 full[kStages], empty[kStages], ring_full[kRingPairs], ring_empty[kRingPairs];
};
// Addresses in shared memory, from a base that every thread keeps.
#define NIBBLE_AT(base, field) ((base) + static_cast<u32>(offsetof(GemmShared<kTiles>, field)))

// A place in a ring of buffers with barriers: its index and the parity of its phase.
template <int kSize>
struct Turn {
  u32 index = 0, parity = 0;
  __device__ void next() {
    if (++index < kSize) return;
    index = 0;
    parity ^= 1;
  }
};

// A tile of the output, rows of one segment by tokens, and how much of K: all of it, or a head that another thread
// block goes on from, or the rest.
struct Piece {
  int segment;
  int first_tile;  // of 16 rows
  int first_token;
  int first_pair, end_pair;
};

// What a thread block does, piece by piece. Whole tiles go round the blocks, as many as come out even. The rest, more
// than one tile and less than two for a block, is cut into equal shares: a share ends in the head of a tile whose rest
// begins the next block's share. A block makes that head first and the rest of its neighbour's tile last, so that
// nobody waits for long, and the sums of an output are added in the order of K as always. Cuts along K are at multiples
// of kCutPairs, so that a sum is not divided.
template <int kTiles, int kCutPairs>
class Schedule {
 public:
  __device__ Schedule(const Problem& p, int block, int n_blocks) : block_(block), n_blocks_(n_blocks) {
    n_token_tiles_ = (p.n_rows + kTokens - 1) / kTokens;
    for (int s = 0; s < p.n_segments; ++s) n_groups_ += (p.segments[s].n_tiles + kTiles - 1) / kTiles;
    const int n_tiles = n_groups_ * n_token_tiles_, n_rounds = n_tiles / n_blocks;
    if (p.handovers == nullptr || n_rounds == 0 || n_tiles % n_blocks == 0) {
      n_whole_ = n_tiles > block ? (n_tiles - block - 1) / n_blocks + 1 : 0;
      n_pieces_ = n_whole_;
      return;
    }
    n_whole_ = n_rounds - 1;
    first_shared_ = n_whole_ * n_blocks;
    const int n_pairs = (n_tiles - first_shared_) * p.n_pairs;
    const int begin = share(p, n_pairs, block), end = share(p, n_pairs, block + 1);
    tail_ = begin / p.n_pairs;
    tail_pair_ = begin % p.n_pairs;
    head_ = end / p.n_pairs;
    head_pairs_ = end % p.n_pairs;
    const int first_entire = tail_ + (tail_pair_ != 0);
    n_pieces_ = n_whole_ + (head_pairs_ != 0) + (head_ - first_entire) + (tail_pair_ != 0);
  }
  __device__ int size() const { return n_pieces_; }

  __device__ Piece at(const Problem& p, int i) const {
    int tile, first_pair = 0, end_pair = p.n_pairs;
    const int before_whole = head_pairs_ != 0, whole = i - before_whole;
    if (whole < 0) {
      tile = first_shared_ + head_;
      end_pair = head_pairs_;
    } else if (whole < n_whole_) {
      tile = whole * n_blocks_ + block_;
    } else {
      const int entire = tail_ + (tail_pair_ != 0) + whole - n_whole_;
      if (entire >= head_) first_pair = tail_pair_;
      tile = first_shared_ + (entire < head_ ? entire : tail_);
    }
    return place(p, tile, first_pair, end_pair);
  }

 private:
  __device__ int share(const Problem& p, int n_pairs, int block) const {
    const int cut = static_cast<int>(static_cast<long long>(n_pairs) * block / n_blocks_);
    return cut - cut % p.n_pairs % kCutPairs;
  }
  __device__ Piece place(const Problem& p, int tile, int first_pair, int end_pair) const {
    const int per_raster = kRasterGroups * n_token_tiles_, raster = tile / per_raster, rest = tile % per_raster;
    const int groups = min(kRasterGroups, n_groups_ - raster * kRasterGroups);
    int group = raster * kRasterGroups + rest % groups, s = 0;
    for (;; ++s) {
      const int of_segment = (p.segments[s].n_tiles + kTiles - 1) / kTiles;
      if (group < of_segment) break;
      group -= of_segment;
    }
    return {s, group * kTiles, rest / groups * kTokens, first_pair, end_pair};
  }

  int block_, n_blocks_, n_groups_ = 0, n_token_tiles_, n_whole_, n_pieces_;
  int first_shared_ = 0;  // tile of those in shares; `tail_` and `head_` count from it
  int tail_ = 0, tail_pair_ = 0, head_ = 0, head_pairs_ = 0;
};

}  // namespace nibble::kernels::cuda::nvfp4
