// Hopper's attention of a prompt: what lies in shared memory, and who brings it there.
#pragma once

#include "kernels/cuda/attention_softmax.cuh"
#include "kernels/cuda/wgmma_sm90.cuh"

namespace nibble::kernels::cuda::prompt_sm90 {

using nvfp4::matrix_at;
using nvfp4::matrix_descriptor;
using nvfp4::store_shared16;

constexpr int kWarpgroup = 128;
constexpr int kConsumers = 2;  // warpgroups of 64 queries
constexpr int kGroupQueries = 64;
constexpr int kPromptThreads = (1 + kConsumers) * kWarpgroup;
constexpr int kStages = 2;
constexpr int kScaleSlots = 4;  // a split's scales are read until its successor's scores are there
constexpr int kRowBytes = 128;  // of a matrix in shared memory: 64 f16, the width of the swizzle

// Matrices are rows of 64 f16; where a head or a split is longer there are more of them, one after the other.
template <int kHeadDim>
struct PromptShared {
  static constexpr int kChunks = kHeadDim / nc1::kScoreChunk;
  static constexpr int kQueryBytes = kGroupQueries * kRowBytes;  // of a chunk
  static constexpr int kKeyBytes = kSplit * kRowBytes;           // of a chunk
  static constexpr int kValueBytes = kHeadDim * kRowBytes;       // of 64 keys
  alignas(1024) std::uint8_t queries[kConsumers][kChunks][kQueryBytes];
  alignas(1024) std::uint8_t keys[kStages][kChunks][kKeyBytes];  // rows in the order of key_row
  alignas(1024) std::uint8_t values[kStages][2][kValueBytes];    // a row is a dimension
  alignas(16) u32 packed_values[kStages][kSplit / 4][kHeadDim];  // as the cache has them
  alignas(16) float key_scales[kScaleSlots][kSplit];
  alignas(16) float value_scales[kScaleSlots][kSplit];
  u64 keys_full[kStages], keys_empty[kStages], values_full[kStages], values_empty[kStages];
};
// The address of a field, from a base that every thread keeps.
#define NIBBLE_PROMPT_AT(base, field) ((base) + static_cast<u32>(offsetof(PromptShared<kHeadDim>, field)))

// Where piece i of 16 bytes of a row lies in it.
__device__ inline u32 piece_at(int row, int piece) {
  return static_cast<u32>(row * kRowBytes + (piece ^ row % 8) * 16);
}
// The row of a key: of each sixteen, 4t and 4t + 1 become columns 2t and 2t + 1 of the scores, the two keys after them
// columns 8 further. So a thread has four neighbours (key_of).
__device__ constexpr int key_row(int key) {
  return key / 16 * 16 + key / 2 % 2 * 8 + key / 4 % 4 * 2 + key % 2;
}

// The splits that a tile sees.
struct SplitLoop {
  int first_key, count;
};

// The warpgroup that brings keys, values and scales. Values come as bytes, four keys of a dimension in a word, and
// leave as f16: each thread makes those that it has copied itself. Keys of a split are on their way while the values of
// the split before are made.
template <int kHeadDim>
struct Producer {
  using Shared = PromptShared<kHeadDim>;
  static constexpr int kWarps = kWarpgroup / kWarp;
  static constexpr int kQuads = kHeadDim / 4;                       // of dimensions
  static constexpr int kUnits = kSplit / 16 * kQuads / kWarpgroup;  // of a thread: 16 keys by 4 dimensions
  static constexpr int kSplitBytes = kSplit * kHeadDim;             // of values
  static constexpr int kUnitRows = kWarpgroup / kQuads * 4;         // of words, from a thread's unit to its next
  const CachePart& cache;
  SplitLoop splits;
  u32 base;
  int thread;

  // Where the words of this thread's first unit begin, in a split of the cache as well as in shared memory.
  __device__ u32 first_word() const { return thread / kQuads * 4 * (kHeadDim * 4) + thread % kQuads * 16; }

  __device__ void fetch(int split) const {
    const int first_key = splits.first_key + split * kSplit;
    fetch_keys(cache.keys + static_cast<std::size_t>(first_key) * kHeadDim + thread * 8, split % kStages);
    const std::int8_t* values = cache.values + static_cast<std::size_t>(first_key) * kHeadDim + first_word();
    const u32 to = NIBBLE_PROMPT_AT(base, packed_values) + split % kStages * kSplitBytes + first_word();
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int offset = (unit * kUnitRows + i) * kHeadDim * 4;
        copy_16(to + offset, values + offset);
      }
    }
    if (thread < kSplit / 2) {
      const int i = thread % (kSplit / 4) * 4;
      const float* scales = thread < kSplit / 4 ? cache.key_scales : cache.value_scales;
      const u32 slots = thread < kSplit / 4 ? NIBBLE_PROMPT_AT(base, key_scales) : NIBBLE_PROMPT_AT(base, value_scales);
      copy_16(slots + (split % kScaleSlots * kSplit + i) * 4, scales + first_key + i);
    }
  }

  // A thread takes a piece of 16 bytes of every kKeys-th key. Eight keys further, a row is four further, where pieces
  // lie four apart.
  __device__ void fetch_keys(const __half* from, int stage) const {
    constexpr int kPieces = kHeadDim / 8, kKeys = kWarpgroup / kPieces;
    const int piece = thread % kPieces;
    const u32 even = NIBBLE_PROMPT_AT(base, keys) + (stage * Shared::kChunks + piece / 8) * Shared::kKeyBytes +
                     piece_at(key_row(thread / kPieces), piece % 8);
    const u32 odd = (even ^ 4 * 16) + 4 * kRowBytes;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int sixteen = i * kKeys / 16;
      copy_16((i * kKeys % 16 == 0 ? even : odd) + sixteen * 16 * kRowBytes, from + i * kWarpgroup * 8);
    }
  }

  // Four signed bytes as f16, by the f16 whose last places count ones.
  static __device__ void unpack(u32 word, u32& low, u32& high) {
    constexpr u32 kOffset = 0x80808080u, k1024 = 0x64646464u, k1152 = 0x64806480u;
    word ^= kOffset;
    low = subtract_halves(__byte_perm(word, k1024, 0x4140), k1152);
    high = subtract_halves(__byte_perm(word, k1024, 0x4342), k1152);
  }

  __device__ void make_values(int split) const {
    const int lane = thread % kWarp, quad = thread % kQuads, sixteen = thread / kQuads;
    const u32 from = NIBBLE_PROMPT_AT(base, packed_values) + split % kStages * kSplitBytes + first_word();
    const u32 to = NIBBLE_PROMPT_AT(base, values) + (split % kStages * 2 + sixteen / 4) * Shared::kValueBytes +
                   quad * 4 * kRowBytes;
    const u32 piece = sixteen % 4 * 2 ^ quad % 2 * 4;
    // Lanes take their four dimensions in such an order that no bank is met twice.
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      const u32 dim = (i + lane / 2 + lane / 8) % 4, place = to + dim * kRowBytes + (piece ^ dim) * 16;
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        u32 low[4], high[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          unpack(load_shared4(from + dim * 4 + (unit * kUnitRows + j) * kHeadDim * 4), low[j], high[j]);
        }
        const u32 matrix = unit * Shared::kValueBytes;
        store_shared16(place + matrix, low[0], low[1], low[2], low[3]);
        store_shared16((place ^ 16) + matrix, high[0], high[1], high[2], high[3]);
      }
    }
  }

  // What this warp has written is there for the tensor core.
  __device__ void arrive(u32 barrier) const {
    nvfp4::fence_async_proxy();
    __syncwarp();
    if (thread % kWarp == 0) barrier_arrive(barrier);
  }

  __device__ void run() const {
    for (int split = 0; split <= splits.count; ++split) {
      if (split < splits.count) {
        barrier_wait(NIBBLE_PROMPT_AT(base, keys_empty) + split % kStages * 8, split / kStages % 2 ^ 1);
        fetch(split);
      }
      commit_copies();
      if (split == 0) continue;
      const int before = split - 1;
      wait_copies<1>();
      arrive(NIBBLE_PROMPT_AT(base, keys_full) + before % kStages * 8);
      barrier_wait(NIBBLE_PROMPT_AT(base, values_empty) + before % kStages * 8, before / kStages % 2 ^ 1);
      make_values(before);
      arrive(NIBBLE_PROMPT_AT(base, values_full) + before % kStages * 8);
    }
  }
};

}  // namespace nibble::kernels::cuda::prompt_sm90
