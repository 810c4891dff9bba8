// Rotation, the cache and attention: which kernel takes a step's rows, and how the work is divided.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "format/contract_math.h"
#include "kernels/cuda/cuda_backend.h"

namespace nibble::kernels::cuda {
namespace {

constexpr int kTileQueries = 16;
constexpr int kPromptTileQueries = 64, kSm90TileQueries = 128;
constexpr std::size_t kMaxPartialBytes = std::size_t{64} << 20;

// Rounded up to a power of two, so that a step can be replayed while the sequence grows.
int splits_of(std::span<const TokenRow> rows) {
  const int last = std::ranges::max(rows, {}, &TokenRow::pos).pos;
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(last / kSplit + 1)));
}

// That so many keys can touch, wherever they begin.
int splits_of_window(int window) {
  return static_cast<int>((std::int64_t{window} + kSplit - 2) / kSplit + 1);
}

std::size_t partial_bytes(const AttentionArgs& a, int n_splits) {
  return static_cast<std::size_t>(a.n_rows) * a.n_heads * n_splits * partial_ints(a.head_dim) * sizeof(std::int32_t);
}

}  // namespace

RopeArgs CudaBackend::rope_args(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows,
                                const RopeTable& table) {
  const auto* cos_sin = static_cast<const CudaRopeTable&>(table).cos_sin.as<float>();
  return {x,       stage_rows(rows), cos_sin,          static_cast<int>(rows.size()),
          n_heads, head_dim,         table.rotary_dim, table.interleaved};
}

void CudaBackend::rope(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows, const RopeTable& table) {
  record("rope", rope_args(x, n_heads, head_dim, rows, table), {static_cast<int>(rows.size()), n_heads, head_dim, 1});
}

void CudaBackend::store_kv(const float* k, const float* v, std::span<const TokenRow> rows, int layer) {
  record("store_kv", RopeStoreKvArgs{{}, kv_args(const_cast<float*>(k), v, rows, layer)},  // k is not written
         {static_cast<int>(rows.size()), rows[0].cache->shape.n_kv_heads, rows[0].cache->shape.head_dim, layer});
}

void CudaBackend::rope_store_kv(float* q, int n_heads, float* k, const float* v, std::span<const TokenRow> rows,
                                int layer, const RopeTable& table) {
  const int head_dim = rows[0].cache->shape.head_dim;
  record("rope_store_kv", RopeStoreKvArgs{rope_args(q, n_heads, head_dim, rows, table), kv_args(k, v, rows, layer)},
         {static_cast<int>(rows.size()), n_heads, head_dim, layer});
}

StoreKvArgs CudaBackend::kv_args(float* k, const float* v, std::span<const TokenRow> rows, int layer) {
  const KvShape& shape = rows[0].cache->shape;
  return {k,    v, stage_rows(rows), step_.flags(0), static_cast<int>(rows.size()), shape.n_kv_heads, shape.head_dim,
          layer};
}

// Zeros when it grows. What ops of this step were recorded with stays until it has ended.
void* CudaBackend::scratch(DeviceMemory& memory, std::size_t bytes, const char* what) {
  if (memory.size() >= bytes || !step_.status().ok()) return memory.as<void>();
  const auto grow = [&]() -> Status {
    NIBBLE_ASSIGN(DeviceMemory larger, DeviceMemory::allocate(bytes, what));
    NIBBLE_TRY(check(cudaMemsetAsync(larger.as<void>(), 0, bytes, stream_.get()), "cudaMemsetAsync", what));
    outgrown_.push_back(std::exchange(memory, std::move(larger)));
    return ok_status();
  };
  if (auto grown = grow(); !grown.ok()) step_.fail(std::move(grown).error());
  return memory.as<void>();
}

bool CudaBackend::are_different_caches(std::span<const TokenRow> rows) {
  if (rows.size() > 1 && rows[0].cache == rows[1].cache) return false;  // most prompts
  caches_.clear();
  for (const TokenRow& row : rows) caches_.push_back(row.cache);
  std::ranges::sort(caches_);
  return std::ranges::adjacent_find(caches_) == caches_.end();
}

void CudaBackend::attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                            float* out) {
  record_attention(q, rows, layer, shape, out, nullptr);
}

void CudaBackend::attention_input(const float* q, std::span<const TokenRow> rows, int layer,
                                  const AttentionShape& shape, float* out, LinearInput& input) {
  const bool whole_blocks = shape.head_dim % kBlockColumns == 0;
  record_attention(q, rows, layer, shape, out, whole_blocks ? static_cast<CudaLinearInput*>(&input) : nullptr);
  if (whole_blocks) {
    prepare_other_formats(static_cast<const CudaLinearInput&>(input));
  } else {
    prepare_input(out, static_cast<int>(rows.size()), input);
  }
}

// Everything but how the work is divided. Fills `input`, if it is not null, with the quantized output.
AttentionArgs CudaBackend::attention_args(const float* q, std::span<const TokenRow> rows, int layer,
                                          const AttentionShape& shape, float* out, CudaLinearInput* input) {
  AttentionArgs args;
  args.q = q;
  args.out = out;
  args.rows = stage_rows(rows);
  args.flags = step_.flags(0);
  args.n_rows = static_cast<int>(rows.size());
  if (input != nullptr) {
    input->n_rows = args.n_rows;
    input->x = out;
    args.quantized = input->quantized;
    args.input_flags = step_.flags(input->first_flag);
  }
  args.n_heads = shape.n_heads;
  args.n_kv_heads = shape.n_kv_heads;
  args.head_dim = shape.head_dim;
  args.layer = layer;
  args.window = shape.window > 0 ? shape.window : std::numeric_limits<int>::max();
  // Section 7, step 3.
  args.score_scale = (shape.scale * format::kLog2E) / static_cast<float>(shape.head_dim & -shape.head_dim);
  args.score_limit = 0x1p20F / args.score_scale;
  return args;
}

// Records attention of rows of one sequence by large tiles, if there is a kernel for them.
bool CudaBackend::record_prompt_tiles(AttentionArgs args, std::span<const TokenRow> rows) {
  if (!std::ranges::is_sorted(rows, {}, &TokenRow::pos)) return false;
  const int group = args.n_heads / args.n_kv_heads;
  const std::array<int, 4> shape = {args.n_rows, args.n_heads, args.head_dim, splits_of(rows) * kSplit};
  const auto fits = [&](int bytes, int queries) {
    return bytes > 0 && bytes <= device_.shared_bytes && group <= queries;
  };
  if (device_.major == 9 && device_.minor == 0 && fits(prompt_sm90_shared_bytes(args.head_dim), kSm90TileQueries)) {
    args.rows_per_tile = kSm90TileQueries / group;
    record("attention_prompt_sm90", PromptSm90Args{args}, shape);
    return true;
  }
  if (!fits(prompt_shared_bytes(args.head_dim), kPromptTileQueries)) return false;
  args.rows_per_tile = kPromptTileQueries / group;
  record("attention_prompt", PromptArgs{args}, shape);
  return true;
}

void CudaBackend::record_attention(const float* q, std::span<const TokenRow> rows, int layer,
                                   const AttentionShape& shape, float* out, CudaLinearInput* input) {
  AttentionArgs args = attention_args(q, rows, layer, shape, out, input);
  const int group = shape.n_heads / shape.n_kv_heads;
  const bool one_cache = std::ranges::all_of(rows, [&](const TokenRow& row) { return row.cache == rows[0].cache; });
  args.rows_per_tile = one_cache ? std::max(1, kTileQueries / group) : 1;

  // Few tiles of long sequences leave most of the GPU idle: then each split is a thread block.
  const int n_splits = splits_of(rows);
  const std::int64_t parts = (group + kTileQueries - 1) / kTileQueries;
  const std::int64_t tiles =
      std::int64_t{(args.n_rows + args.rows_per_tile - 1) / args.rows_per_tile} * shape.n_kv_heads * parts;
  const std::size_t bytes = partial_bytes(args, n_splits);
  if (n_splits > 1 && tiles < 2 * device_.n_multiprocessors && bytes <= kMaxPartialBytes) {
    args.n_splits = n_splits;
    args.partial = static_cast<std::int32_t*>(scratch(partial_, bytes, "sums of attention"));
  } else if (one_cache && record_prompt_tiles(args, rows)) {
    return;
  }
  record("attention", args, {args.n_rows, shape.n_heads, shape.head_dim, n_splits * kSplit});
}

void CudaBackend::rope_attention_input(float* q, float* k, const float* v, std::span<const TokenRow> rows, int layer,
                                       const RopeTable& table, const AttentionShape& shape, float* out,
                                       LinearInput& input) {
  const auto decode = [&](DecodeArgs args) {
    args.attention.n_splits = std::min(splits_of(rows), splits_of_window(args.attention.window));
    const std::size_t bytes = partial_bytes(args.attention, args.attention.n_splits);
    if (bytes > kMaxPartialBytes || !plan(args, {device_.n_multiprocessors, device_.shared_bytes})) {
      return false;
    }
    args.attention.partial = static_cast<std::int32_t*>(scratch(partial_, bytes, "sums of attention"));
    args.arrived = static_cast<int*>(scratch(arrived_, n_counters(args) * sizeof(int), "counters of attention"));
    record("attention_decode", args,
           {args.attention.n_rows, shape.n_heads, shape.head_dim, args.attention.n_splits * kSplit});
    return true;
  };
  const auto& rope = static_cast<const CudaRopeTable&>(table);
  const bool whole_blocks = shape.head_dim % kBlockColumns == 0;
  auto* to = static_cast<CudaLinearInput*>(&input);
  if (are_different_caches(rows) &&
      decode({.attention = attention_args(q, rows, layer, shape, out, whole_blocks ? to : nullptr),
              .kv = kv_args(k, v, rows, layer),
              .cos_sin = rope.cos_sin.as<float>(),
              .rotary_dim = rope.rotary_dim,
              .interleaved = rope.interleaved})) {
    if (whole_blocks) {
      prepare_other_formats(*to);
    } else {
      prepare_input(out, static_cast<int>(rows.size()), input);
    }
    return;
  }
  Backend::rope_attention_input(q, k, v, rows, layer, table, shape, out, input);
}

}  // namespace nibble::kernels::cuda
