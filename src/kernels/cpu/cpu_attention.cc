// Rotation, the cache and attention of the CPU backend: how the work is divided among threads.
#include <algorithm>

#include "base/check.h"
#include "format/nc1.h"
#include "kernels/cpu/cpu_backend_class.h"

namespace nibble::kernels::cpu {
namespace {

constexpr std::size_t kJobsPerThread = 8;  // of attention, that divide evenly enough
constexpr std::size_t kSplitsInARow = 8;   // that a thread takes at a time: they follow one another in the cache

void extend_caches(std::span<const TokenRow> rows) {
  for (const TokenRow& row : rows) static_cast<CpuKvCache&>(*row.cache).extend(row.pos + 1);
}

}  // namespace

std::unique_ptr<KvCache> CpuBackend::make_kv_cache(const KvShape& shape) {
  reserve_scratch(attention_scratch_floats(shape.head_dim));
  const std::size_t sums = pool_.size() > 1 ? kSplitSlots * split_sums_floats(shape.head_dim) : 0;
  if (split_sums_.size() < sums) split_sums_ = AlignedBuffer<float>(sums);
  return std::make_unique<CpuKvCache>(shape);
}

void CpuBackend::rope(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows, const RopeTable& table) {
  for_each(rows.size(), kTokenGrain,
           [&](std::size_t i, int) { rope_row(x + i * n_heads * head_dim, n_heads, head_dim, rows[i], table); });
}

void CpuBackend::store_kv(const float* k, const float* v, std::span<const TokenRow> rows, int layer) {
  extend_caches(rows);
  for_each(rows.size(), kTokenGrain, [&](std::size_t i, int thread) { store_kv_row(k, v, i, rows[i], layer, thread); });
}

void CpuBackend::rope_store_kv(float* q, int n_heads, float* k, const float* v, std::span<const TokenRow> rows,
                               int layer, const RopeTable& table) {
  const KvShape& shape = rows[0].cache->shape;
  extend_caches(rows);
  for_each(rows.size(), kTokenGrain, [&](std::size_t i, int thread) {
    rope_row(q + i * n_heads * shape.head_dim, n_heads, shape.head_dim, rows[i], table);
    rope_row(k + i * shape.n_kv_heads * shape.head_dim, shape.n_kv_heads, shape.head_dim, rows[i], table);
    store_kv_row(k, v, i, rows[i], layer, thread);
  });
}

void CpuBackend::rope_row(float* x, int n_heads, int head_dim, const TokenRow& row, const RopeTable& table) {
  NIBBLE_CHECK(table.rotary_dim <= head_dim, "rope rotates more dimensions than a head has");
  NIBBLE_CHECK(row.pos >= 0 && row.pos < table.n_positions, "a position beyond the rope table");
  table_.rope(x, n_heads, head_dim, static_cast<const HostRopeTable&>(table).row(row.pos).data(), table.rotary_dim,
              table.interleaved);
}

void CpuBackend::store_kv_row(const float* k, const float* v, std::size_t i, const TokenRow& row, int layer,
                              int thread) {
  auto& cache = static_cast<CpuKvCache&>(*row.cache);
  const KvShape& shape = cache.shape;
  NIBBLE_CHECK(row.pos >= 0 && row.pos < shape.capacity, "a position beyond the KV cache");
  for (int head = 0; head < shape.n_kv_heads; ++head) {
    const std::size_t at = (i * shape.n_kv_heads + head) * shape.head_dim;
    flag_row(i, table_.store_kv(cache.head_shape(), k + at, v + at, scratch_[thread].data(),
                                cache.split_of(layer, head, row.pos), row.pos % format::nc1::kSplit));
  }
}

void CpuBackend::attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                           float* out) {
  NIBBLE_CHECK(shape.n_kv_heads > 0 && shape.n_heads % shape.n_kv_heads == 0,
               "query heads share key-value heads evenly");
  const int heads_per_kv = shape.n_heads / shape.n_kv_heads;
  const AttentionCall call{
      q, rows, layer, shape, out, score_scale(shape), heads_per_kv, (heads_per_kv + kMaxJobHeads - 1) / kMaxJobHeads};
  const std::size_t n_rows = rows.size(), n_jobs = static_cast<std::size_t>(call.jobs_per_row());
  if (pool_.size() > 1 && n_rows * n_jobs < kJobsPerThread * static_cast<std::size_t>(pool_.size()) &&
      static_cast<std::size_t>(shape.n_heads) <= kSplitSlots) {
    for (std::size_t i = 0; i < n_rows; ++i) attend_in_splits(call, i);
    return;
  }
  // Later rows see more keys: taking rows from both ends in turn gives every thread the same work.
  const auto balanced = [n_rows](std::size_t i) { return i % 2 == 0 ? i / 2 : n_rows - 1 - i / 2; };
  for_each(n_rows * n_jobs, 1, [&](std::size_t task, int thread) {
    const std::size_t i = balanced(task / n_jobs);
    flag_row(i, table_.attention(call.job(i, static_cast<int>(task % n_jobs), scratch_[thread].data())));
  });
}

// Few heads and many keys: threads share the splits of a row, as many at once as there is room for.
void CpuBackend::attend_in_splits(const AttentionCall& call, std::size_t i) {
  const int n_splits = call.rows[i].pos / format::nc1::kSplit + 1;
  const auto n_heads = static_cast<std::size_t>(call.shape.n_heads);
  const std::size_t floats = split_sums_floats(call.shape.head_dim), stride = n_heads * floats;
  const int at_once = static_cast<int>(kSplitSlots / n_heads);
  for (int first = call.first_key(i) / format::nc1::kSplit; first < n_splits; first += at_once) {
    const int last = std::min(n_splits, first + at_once), n = last - first;
    const auto sum = [&](std::size_t begin, std::size_t end, int thread) {
      for (std::size_t task = begin; task < end;) {  // a run of splits of one job at a time
        const int job = static_cast<int>(task / n), from = static_cast<int>(task % n);
        const int to = static_cast<int>(std::min<std::size_t>(n, from + (end - task)));
        float* const sums = split_sums_.data() + from * stride + call.first_head(job) * floats;
        flag_row(i, table_.attention_splits(call.job(i, job, scratch_[thread].data()), first + from, first + to, stride,
                                            sums));
        task += to - from;
      }
    };
    pool_.parallel_for(static_cast<std::size_t>(call.jobs_per_row()) * n, 1, kSplitsInARow, sum);
    for_each(call.jobs_per_row(), 1, [&](std::size_t job, int thread) {
      const int head = call.first_head(static_cast<int>(job));
      table_.attention_merge(call.job(i, static_cast<int>(job), scratch_[thread].data()), first, last, stride,
                             split_sums_.data() + head * floats, head_states_.data() + head);
    });
  }
}

}  // namespace nibble::kernels::cpu
