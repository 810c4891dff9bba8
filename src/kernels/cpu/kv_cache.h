// Keys and values of one sequence as the contract's integers: 16 bits a key element, 8 bits a value element, one scale
// each per token and head.
#pragma once

#include <cstdint>

#include "base/page_arena.h"
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

class CpuKvCache final : public KvCache {
 public:
  explicit CpuKvCache(const KvShape& kv_shape);

  std::size_t bytes() const override { return memory_.size; }
  const HeadShape& head_shape() const { return head_shape_; }
  KvSplits splits(int layer, int head) const {
    const std::size_t of_head = run_ * split_bytes(head_shape_);
    return {memory_.data.get() + (static_cast<std::size_t>(layer) * shape.n_kv_heads + head) * of_head, run_,
            run_stride_};
  }
  KvSplit split_of(int layer, int head, int pos) const {
    return splits(layer, head).at(head_shape_, pos / format::nc1::kSplit);
  }

 private:
  HeadShape head_shape_;
  int run_;
  std::size_t run_stride_;
  PageSpan memory_;  // [runs, n_layers, n_kv_heads, run_], a split each: one that grows touches page after page
};

}  // namespace nibble::kernels::cpu
