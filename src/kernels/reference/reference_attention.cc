// Rotation, the cache and attention of the reference backend.
#include <algorithm>
#include <limits>
#include <vector>

#include "base/check.h"
#include "format/portable.h"
#include "kernels/reference/reference_backend_class.h"
#include "oracle/attention.h"
#include "oracle/hadamard.h"
#include "oracle/rope.h"

namespace nibble::kernels::reference {

std::unique_ptr<KvCache> ReferenceBackend::make_kv_cache(const KvShape& shape) {
  auto cache = std::make_unique<ReferenceCache>();
  cache->shape = shape;
  for (int i = 0; i < shape.n_layers * shape.n_kv_heads; ++i) cache->heads.emplace_back(shape.capacity, shape.head_dim);
  return cache;
}

void ReferenceBackend::rope(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows,
                            const RopeTable& base) {
  const auto& table = static_cast<const HostRopeTable&>(base);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (int h = 0; h < n_heads; ++h) {
      oracle::rope({x + (i * n_heads + h) * head_dim, std::size_t(head_dim)}, table.row(rows[i].pos),
                   table.interleaved);
    }
  }
}

// One head's vector as attention wants it: rotated integers and their scale, or the floats under a scale of 1.
bool ReferenceBackend::load_head(std::span<const float> x, int max, float* values, float& scale) const {
  if (!integer_attention()) {
    std::ranges::copy(x, values);
    scale = 1;
    return std::ranges::none_of(x, format::is_nonfinite);
  }
  const oracle::QuantizedHead head = oracle::quantize_head(x, max);
  std::ranges::copy(head.q, values);
  scale = head.scale;
  return head.finite;
}

void ReferenceBackend::store_kv(const float* k, const float* v, std::span<const TokenRow> rows, int layer) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto& cache = static_cast<ReferenceCache&>(*rows[i].cache);
    const std::size_t dim = cache.shape.head_dim;
    NIBBLE_CHECK(rows[i].pos >= 0 && rows[i].pos < cache.shape.capacity, "a position beyond the cache");
    std::vector<float> key(dim);
    std::vector<float> value(dim);
    for (int h = 0; h < cache.shape.n_kv_heads; ++h) {
      const std::size_t at = (i * cache.shape.n_kv_heads + h) * dim;
      float key_scale = 0;
      float value_scale = 0;
      const bool key_finite = load_head({k + at, dim}, oracle::kKeyMax, key.data(), key_scale);
      const bool value_finite = load_head({v + at, dim}, oracle::kValueMax, value.data(), value_scale);
      if (!key_finite || !value_finite) mark_nonfinite(i);
      cache.head(layer, h).store(rows[i].pos, key.data(), key_scale, value.data(), value_scale);
    }
  }
}

void ReferenceBackend::attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                                 float* out) {
  constexpr std::size_t kRows = 16;  // rows that share a split of keys while it is in the first-level cache
  const std::size_t n_groups = (rows.size() + kRows - 1) / kRows;
  pool_.parallel_for(n_groups * shape.n_kv_heads, 1, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t item = begin; item < end; ++item) {
      const std::size_t first = item / shape.n_kv_heads * kRows;
      attend_group(q, rows, shape, layer, static_cast<int>(item % shape.n_kv_heads), first,
                   std::min(kRows, rows.size() - first), out);
    }
  });
}

void ReferenceBackend::attend_group(const float* q, std::span<const TokenRow> rows, const AttentionShape& shape,
                                    int layer, int kv_head, std::size_t first_row, std::size_t n_rows, float* out) {
  const int group = shape.n_heads / shape.n_kv_heads;
  const std::size_t dim = shape.head_dim;
  const oracle::ScoreScale scale = oracle::make_score_scale(shape.scale, shape.head_dim);
  for (std::size_t i = 0; i < n_rows;) {
    std::size_t last = i;  // rows of one sequence go together
    while (last < n_rows && rows[first_row + last].cache == rows[first_row + i].cache) ++last;
    const HeadCache& cache = static_cast<ReferenceCache&>(*rows[first_row + i].cache).head(layer, kv_head);
    std::vector<HeadState> states(static_cast<std::size_t>(group) * (last - i), HeadState(shape.head_dim));
    int first_key = std::numeric_limits<int>::max(), n_keys = 0;
    for (std::size_t s = 0; s < states.size(); ++s) {
      const std::size_t row = first_row + i + s / group;
      const std::size_t at = (row * shape.n_heads + static_cast<std::size_t>(kv_head) * group + s % group) * dim;
      if (!load_head({q + at, dim}, oracle::kQueryMax, states[s].q.data(), states[s].q_scale)) mark_nonfinite(row);
      states[s].n_keys = rows[row].pos + 1;
      states[s].first_key = shape.window > 0 ? std::max(0, states[s].n_keys - shape.window) : 0;
      first_key = std::min(first_key, states[s].first_key);
      n_keys = std::max(n_keys, states[s].n_keys);
    }
    for (int split = first_key / kSplit; split * kSplit < n_keys; ++split) {
      for (HeadState& state : states) {
        if (split * kSplit >= state.n_keys || (split + 1) * kSplit <= state.first_key) continue;
        if (integer_attention()) {
          attend_integer(cache, split, scale.c, scale.limit, state);
        } else {
          attend_float(cache, split, shape.scale, state);
        }
      }
    }
    for (std::size_t s = 0; s < states.size(); ++s) {
      const std::size_t row = first_row + i + s / group;
      const std::size_t at = (row * shape.n_heads + static_cast<std::size_t>(kv_head) * group + s % group) * dim;
      finish_head(states[s], {out + at, dim});
    }
    i = last;
  }
}

void ReferenceBackend::finish_head(HeadState& state, std::span<float> out) const {
  if (!integer_attention()) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(state.sums[i] / state.sum);
    return;
  }
  const auto size = static_cast<float>(oracle::hadamard_size(static_cast<int>(out.size())));
  const float normalize = (1.0F / size) / state.l;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = state.o[i] * normalize;
  oracle::hadamard(out);
}

}  // namespace nibble::kernels::reference
