// Keys and values of one sequence as the contract's integers: 16 bits a key element, 8 bits a value element, one scale
// each per token and head.
#pragma once

#include <cstdint>

#include "base/aligned_buffer.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"

namespace nibble::kernels::cpu {

HeadShape head_shape_of(int head_dim);

// The constants of a score (docs/contract.md, section 7, step 3).
struct ScoreScale {
  float c;
  float limit;
};
ScoreScale score_scale(const AttentionShape& shape);

struct KvSlot {
  std::int16_t* key;  // [key_stride]
  float* key_scale;
  std::int8_t* value;  // [head_dim]
  float* value_scale;
};

class CpuKvCache final : public KvCache {
 public:
  explicit CpuKvCache(const KvShape& kv_shape);

  std::size_t bytes() const override;
  const HeadShape& head_shape() const { return head_shape_; }
  KvSlot slot(int layer, int head, int pos);

 private:
  HeadShape head_shape_;
  std::size_t padded_capacity_;        // a whole number of vectors, which scores may read beyond the last key
  AlignedBuffer<std::int16_t> keys_;   // [n_layers, n_kv_heads, padded_capacity, key_stride]
  AlignedBuffer<std::int8_t> values_;  // [n_layers, n_kv_heads, padded_capacity, head_dim]
  AlignedBuffer<float> key_scales_;    // [n_layers, n_kv_heads, padded_capacity]
  AlignedBuffer<float> value_scales_;
};

}  // namespace nibble::kernels::cpu
