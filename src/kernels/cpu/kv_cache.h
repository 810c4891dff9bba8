// Keys and values of one sequence as the contract's integers: 16 bits a key element, 8 bits a value element, one scale
// each per token and head.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

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

// The memory of all splits. A layer has as many as the sequence can reach, or with a window as many as the rows of a
// step can see. Layers with as many lie together, [runs, layers, n_kv_heads, splits of a run], so that a sequence that
// grows touches page after page.
struct KvLayout {
  struct Layer {
    std::size_t first = 0;  // byte
    int run = 0;            // splits
    std::size_t run_stride = 0;
    int n_slots = 0;  // splits, as many as its runs hold
  };
  std::vector<Layer> layers;
  std::size_t bytes = 0;
};
KvLayout kv_layout(const KvShape& shape);

class CpuKvCache final : public KvCache {
 public:
  explicit CpuKvCache(const KvShape& kv_shape);

  std::size_t bytes() const override { return memory_.size; }
  int rewind(int n) override;
  // Positions up to `end` are about to be written, over what lies in their slots.
  void extend(int end) { end_ = std::max(end_, end); }
  // Whether every position of a layer from `pos` on is still there.
  bool holds(int layer, int pos) const {
    return pos + std::int64_t{layout_.layers[layer].n_slots} * format::nc1::kSplit >= end_;
  }
  const HeadShape& head_shape() const { return head_shape_; }
  KvSplits splits(int layer, int head) const {
    const KvLayout::Layer& at = layout_.layers[layer];
    return {memory_.data.get() + at.first + head * at.run * split_bytes(head_shape_), at.run, at.run_stride,
            at.n_slots};
  }
  KvSplit split_of(int layer, int head, int pos) const {
    return splits(layer, head).at(head_shape_, pos / format::nc1::kSplit);
  }

 private:
  HeadShape head_shape_;
  KvLayout layout_;
  PageSpan memory_;
  int end_ = 0;  // of the positions that were written since the sequence began
};

}  // namespace nibble::kernels::cpu
