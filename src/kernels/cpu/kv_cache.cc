#include "kernels/cpu/kv_cache.h"

#include <bit>

#include "base/check.h"
#include "format/contract_math.h"

namespace nibble::kernels::cpu {

namespace {

// Long enough that it matters little where a stream of keys and values starts anew (a tenth of the speed if it did at
// every split), short enough that a sequence makes resident what it is about to need.
constexpr int kRunSplits = 8;

}  // namespace

HeadShape head_shape_of(int head_dim) {
  NIBBLE_CHECK(head_dim > 0, "a head has dimensions");
  const int log2 = std::countr_zero(static_cast<unsigned>(head_dim));
  return {.head_dim = head_dim, .padded_dim = (head_dim + 15) / 16 * 16, .hadamard = 1 << log2, .hadamard_log2 = log2};
}

ScoreScale score_scale(const AttentionShape& shape) {
  const auto hadamard = static_cast<float>(head_shape_of(shape.head_dim).hadamard);
  const float c = (shape.scale * format::kLog2E) / hadamard;
  return {c, 0x1p20F / c};
}

CpuKvCache::CpuKvCache(const KvShape& kv_shape) : head_shape_(head_shape_of(kv_shape.head_dim)) {
  shape = kv_shape;
  NIBBLE_CHECK(shape.n_layers > 0 && shape.n_kv_heads > 0 && shape.capacity > 0, "a KV cache has extents");
  // As even as they can be, so that little is reserved beyond the last position.
  const int n_splits = (shape.capacity - 1) / format::nc1::kSplit + 1;
  const int n_runs = (n_splits - 1) / kRunSplits + 1;
  run_ = (n_splits - 1) / n_runs + 1;
  run_stride_ = run_ * split_bytes(head_shape_) * shape.n_layers * shape.n_kv_heads;
  memory_ = PageArena().allocate(n_runs * run_stride_);
}

}  // namespace nibble::kernels::cpu
