// Attention of some tokens, cut into jobs for threads.
#pragma once

#include <cstddef>
#include <span>

#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/kv_cache.h"

namespace nibble::kernels::cpu {

// Query heads of one row that share a key-value head, in groups.
struct AttentionCall {
  const float* q;
  std::span<const TokenRow> rows;
  int layer;
  AttentionShape shape;
  float* out;
  ScoreScale scale;
  int heads_per_kv;
  int jobs_per_kv;

  int jobs_per_row() const { return shape.n_kv_heads * jobs_per_kv; }
  int first_head(int job) const {
    return job / jobs_per_kv * heads_per_kv + heads_per_kv * (job % jobs_per_kv) / jobs_per_kv;
  }
  int first_key(std::size_t i) const {  // that row i sees
    return shape.window > 0 && rows[i].pos >= shape.window ? rows[i].pos + 1 - shape.window : 0;
  }
  AttentionJob job(std::size_t i, int index, float* scratch) const {
    const TokenRow& row = rows[i];
    auto& cache = static_cast<CpuKvCache&>(*row.cache);
    NIBBLE_CHECK(row.pos >= 0 && row.pos < cache.shape.capacity, "a position beyond the KV cache");
    NIBBLE_CHECK(cache.holds(layer, first_key(i)), "keys that the KV cache has given up");
    const int head = first_head(index);
    const std::size_t at = (i * shape.n_heads + head) * shape.head_dim;
    return {.shape = cache.head_shape(),
            .n_heads = first_head(index + 1) - head,
            .q = q + at,
            .splits = cache.splits(layer, index / jobs_per_kv),
            .first_key = first_key(i),
            .n_keys = row.pos + 1,
            .score_scale = scale.c,
            .score_limit = scale.limit,
            .out = out + at,
            .scratch = scratch};
  }
};

}  // namespace nibble::kernels::cpu
