// Attention of the reference backend over a cache whose keys lie transposed in splits of 128. Integers are held in
// floats: every sum of a chunk or a split stays below 2^24, so the integer path has the bits of oracle/attention.h.
#pragma once

#include <vector>

#include "base/aligned_buffer.h"

namespace nibble::kernels::reference {

constexpr int kSplit = 128;

// Keys and values of one layer and key-value head.
struct HeadCache {
  HeadCache(int capacity, int head_dim);

  // Integers and scales, or floats and scales of 1.
  void store(int pos, const float* k, float k_scale, const float* v, float v_scale);

  int head_dim;
  AlignedBuffer<float> keys;          // [n_splits, head_dim, 128]
  AlignedBuffer<float> key_scales;    // [n_splits * 128]
  AlignedBuffer<float> values;        // [n_splits * 128, head_dim]
  AlignedBuffer<float> value_scales;  // [n_splits * 128]
};

// One query head and the fold over splits that it is in.
struct HeadState {
  explicit HeadState(int head_dim) : q(head_dim), partial(head_dim) {}

  std::vector<float> q;        // [head_dim]
  std::vector<float> partial;  // [head_dim], of the split at hand
  float q_scale = 0;
  int first_key = 0;  // sees positions first_key .. n_keys - 1
  int n_keys = 0;
  // Integer attention: base 2, exact powers of two.
  bool empty = true;
  int m = 0;
  float l = 0;
  std::vector<float> o;  // [head_dim]
  // Float attention.
  double max = 0;
  double sum = 0;
  std::vector<double> sums;  // [head_dim]
};

// Adds what the query sees of split `index`, a key at least, to the state. c and limit are oracle::ScoreScale.
void attend_integer(const HeadCache& cache, int index, float c, float limit, HeadState& state);
void attend_float(const HeadCache& cache, int index, float scale, HeadState& state);

}  // namespace nibble::kernels::reference
