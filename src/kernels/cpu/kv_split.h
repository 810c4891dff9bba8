// How keys and values lie in the cache of the CPU: 128 positions of one head, a split of attention, are one piece of
// memory that is read from its start to its end: keys, scales, values. In the keys a lane of 32 bits is a position and
// holds two dimensions; in the values it is a dimension and holds four positions. So nothing is ever added across
// lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/nc1.h"

namespace nibble::kernels::cpu {

struct HeadShape {
  int head_dim;
  int padded_dim;     // head_dim rounded up to 16; what is beyond head_dim is zeros
  int hadamard;       // H, the largest power of two that divides head_dim
  int hadamard_log2;  // h
};

// Positions of a block of keys, and dimensions of a block of values; of these the last may have 16. A pass over a
// block, for some heads, reads one stream.
constexpr int kKeyBlock = 64;
constexpr int kValueBlock = 32;

struct KvSplit {
  std::int16_t* keys;   // [128 / kKeyBlock, padded_dim / 2, kKeyBlock, 2]
  std::int8_t* values;  // [padded_dim / kValueBlock, 128 / 4, kValueBlock, 4]
  float* key_scales;    // [128]
  float* value_scales;  // [128]
};

constexpr std::size_t split_bytes(const HeadShape& shape) {
  return format::nc1::kSplit * (3 * static_cast<std::size_t>(shape.padded_dim) + 2 * sizeof(float));
}

// Where the splits of one head are: a ring of slots, of which those of a run follow one another, so that a core that
// reads them sees one stream.
struct KvSplits {
  std::uint8_t* first;
  int run;                 // splits
  std::size_t run_stride;  // bytes
  int n_slots;

  // always_inline: an instruction set's copy of it must not become everybody's.
  [[gnu::always_inline]] std::uint8_t* piece(const HeadShape& shape, int split) const {
    const int slot = split % n_slots;
    return first + slot / run * run_stride + slot % run * split_bytes(shape);
  }
  [[gnu::always_inline]] KvSplit at(const HeadShape& shape, int split) const {
    std::uint8_t* const bytes = piece(shape, split);
    const std::size_t elements = format::nc1::kSplit * static_cast<std::size_t>(shape.padded_dim);
    auto* const scales = reinterpret_cast<float*>(bytes + 2 * elements);
    float* const end = scales + 2 * format::nc1::kSplit;
    return {reinterpret_cast<std::int16_t*>(bytes), reinterpret_cast<std::int8_t*>(end), scales,
            scales + format::nc1::kSplit};
  }
};

}  // namespace nibble::kernels::cpu
