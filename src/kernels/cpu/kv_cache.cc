#include "kernels/cpu/kv_cache.h"

#include <bit>

#include "base/check.h"
#include "format/contract_math.h"

namespace nibble::kernels::cpu {

HeadShape head_shape_of(int head_dim) {
  NIBBLE_CHECK(head_dim > 0, "a head has dimensions");
  const int log2 = std::countr_zero(static_cast<unsigned>(head_dim));
  return {.head_dim = head_dim, .key_stride = (head_dim + 31) / 32 * 32, .hadamard = 1 << log2, .hadamard_log2 = log2};
}

ScoreScale score_scale(const AttentionShape& shape) {
  const auto hadamard = static_cast<float>(head_shape_of(shape.head_dim).hadamard);
  const float c = (shape.scale * format::kLog2E) / hadamard;
  return {c, 0x1p20F / c};
}

CpuKvCache::CpuKvCache(const KvShape& kv_shape)
    : head_shape_(head_shape_of(kv_shape.head_dim)),
      padded_capacity_((static_cast<std::size_t>(kv_shape.capacity) + kTileRows - 1) / kTileRows * kTileRows) {
  shape = kv_shape;
  NIBBLE_CHECK(shape.n_layers > 0 && shape.n_kv_heads > 0 && shape.capacity > 0, "a KV cache has extents");
  const std::size_t rows = padded_capacity_ * shape.n_layers * shape.n_kv_heads;
  keys_ = AlignedBuffer<std::int16_t>(rows * head_shape_.key_stride);
  values_ = AlignedBuffer<std::int8_t>(rows * head_shape_.head_dim);
  key_scales_ = AlignedBuffer<float>(rows);
  value_scales_ = AlignedBuffer<float>(rows);
}

std::size_t CpuKvCache::bytes() const {
  return keys_.size() * sizeof(std::int16_t) + values_.size() +
         (key_scales_.size() + value_scales_.size()) * sizeof(float);
}

KvSlot CpuKvCache::slot(int layer, int head, int pos) {
  const std::size_t row = (static_cast<std::size_t>(layer) * shape.n_kv_heads + head) * padded_capacity_ + pos;
  return {keys_.data() + row * head_shape_.key_stride, key_scales_.data() + row,
          values_.data() + row * head_shape_.head_dim, value_scales_.data() + row};
}

}  // namespace nibble::kernels::cpu
