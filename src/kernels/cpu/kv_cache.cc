#include "kernels/cpu/kv_cache.h"

#include <bit>
#include <map>

#include "base/check.h"
#include "format/contract_math.h"

namespace nibble::kernels::cpu {

namespace {

// Long enough that it matters little where a stream of keys and values starts anew (a tenth of the speed if it did at
// every split), short enough that a sequence makes resident what it is about to need.
constexpr int kRunSplits = 8;

// Splits that a layer has to keep: all of the sequence, or those that the rows of a step see, which may start and end
// anywhere in a split.
int splits_of(const KvShape& shape, int window) {
  const auto n_splits = [](std::int64_t positions) {
    return (positions + format::nc1::kSplit - 1) / format::nc1::kSplit;
  };
  const std::int64_t all = n_splits(shape.capacity);
  if (window == 0) return static_cast<int>(all);
  const std::int64_t seen = std::int64_t{window} + shape.step_rows - 1;
  return static_cast<int>(std::min(all, n_splits(seen - 1) + 1));
}

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

KvLayout kv_layout(const KvShape& shape) {
  NIBBLE_CHECK(shape.n_layers > 0 && shape.n_kv_heads > 0 && shape.capacity > 0, "a KV cache has extents");
  NIBBLE_CHECK(shape.windows.empty() ||
                   (shape.windows.size() == static_cast<std::size_t>(shape.n_layers) && shape.step_rows > 0),
               "windows of a KV cache are those of all layers, for steps of some rows");
  const std::size_t of_split = split_bytes(head_shape_of(shape.head_dim)) * shape.n_kv_heads;
  KvLayout layout{.layers = std::vector<KvLayout::Layer>(shape.n_layers)};
  struct Group {  // of layers with as many slots
    int n_runs = 0;
    std::size_t run_stride = 0;
    std::size_t first = 0;
  };
  std::map<int, Group> groups;
  for (int i = 0; i < shape.n_layers; ++i) {
    KvLayout::Layer& layer = layout.layers[i];
    const int n_splits = splits_of(shape, shape.windows.empty() ? 0 : shape.windows[i]);
    const int n_runs = (n_splits - 1) / kRunSplits + 1;
    layer.run = (n_splits - 1) / n_runs + 1;  // as even as runs can be, so that little is more than asked for
    layer.n_slots = n_runs * layer.run;
    Group& group = groups[layer.n_slots];
    group.n_runs = n_runs;
    layer.first = group.run_stride;
    group.run_stride += layer.run * of_split;
  }
  for (auto& [n_slots, group] : groups) {
    group.first = layout.bytes;
    layout.bytes += group.n_runs * group.run_stride;
  }
  for (KvLayout::Layer& layer : layout.layers) {
    const Group& group = groups[layer.n_slots];
    layer.first += group.first;
    layer.run_stride = group.run_stride;
  }
  return layout;
}

CpuKvCache::CpuKvCache(const KvShape& kv_shape)
    : head_shape_(head_shape_of(kv_shape.head_dim)),
      layout_(kv_layout(kv_shape)),
      memory_(PageArena().allocate(layout_.bytes)) {
  shape = kv_shape;
}

int CpuKvCache::rewind(int n) {
  for (int i = 0; n > 0 && i < shape.n_layers; ++i) {
    const int window = shape.windows.empty() ? 0 : shape.windows[i];
    if (window > 0 && !holds(i, std::max(0, n - window + 1))) n = 0;
  }
  if (n == 0) end_ = 0;
  return n;
}

}  // namespace nibble::kernels::cpu
