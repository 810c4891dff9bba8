#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/machine.h"
#include "format/nc1.h"
#include "kernels/cpu/canary.h"
#include "kernels/cpu/detect.h"
#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/weights.h"

namespace nibble::kernels::cpu {
namespace {

// Below these sizes an op is not worth waking a thread for.
constexpr std::size_t kElementGrain = 8192;
constexpr std::size_t kTokenGrain = 4;

struct CpuBuffer final : Buffer {
  explicit CpuBuffer(std::size_t n) : floats(n) {}
  float* data() override { return floats.data(); }
  std::size_t size() const override { return floats.size(); }
  AlignedBuffer<float> floats;
};

struct CpuEmbedding final : Embedding {
  TensorView table;
};

struct CpuRopeTable final : RopeTable {
  AlignedBuffer<float> cos_sin;  // [n_positions, rotary_dim / 2, 2]
  const float* row(std::int32_t pos) const { return cos_sin.data() + static_cast<std::size_t>(pos) * rotary_dim; }
};

struct CpuLinearInput final : LinearInput {
  CpuLinearInput(int rows, int columns) : max_rows(rows), n_blocks((columns + 63) / 64) {
    const std::size_t values = static_cast<std::size_t>(max_rows) * n_blocks * format::nc1::kBlock;
    q = AlignedBuffer<std::int16_t>(values);
    q_split = AlignedBuffer<std::int16_t>(values);
    d = AlignedBuffer<float>(static_cast<std::size_t>(max_rows) * n_blocks);
    n_in = columns;
  }
  int max_rows;
  int n_blocks;
  AlignedBuffer<std::int16_t> q, q_split;  // [n_blocks, n_rows, 64]: blocks of the current n_rows lie together
  AlignedBuffer<float> d;                  // [n_blocks, n_rows]
  const float* x = nullptr;
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(const KernelTable& table, int n_threads)
      : table_(table), pool_(n_threads), scratch_(n_threads), flags_(1) {}

  std::string_view name() const override { return "cpu"; }
  std::string description() const override {
    return std::string("cpu ") + table_.isa + ", " + std::to_string(pool_.size()) +
           (pool_.size() == 1 ? " thread" : " threads");
  }

  std::unique_ptr<Buffer> make_buffer(std::size_t n_floats) override { return std::make_unique<CpuBuffer>(n_floats); }
  std::unique_ptr<Buffer> make_vector(std::span<const float> values) override {
    auto buffer = std::make_unique<CpuBuffer>(values.size());
    std::ranges::copy(values, buffer->data());
    return buffer;
  }
  Result<std::unique_ptr<Linear>> make_linear(const WeightSource& weights) override {
    return make_cpu_linear(weights, pool_);
  }
  Result<std::unique_ptr<Embedding>> make_embedding(const TensorView& table) override;
  std::unique_ptr<LinearInput> make_linear_input(int max_rows, int n_in) override {
    NIBBLE_CHECK(max_rows > 0 && n_in > 0, "a linear input has rows and columns");
    reserve_scratch(static_cast<std::size_t>(max_rows) * kTileRows);
    return std::make_unique<CpuLinearInput>(max_rows, n_in);
  }
  std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) override {
    reserve_scratch(attention_scratch_floats(shape.head_dim));
    return std::make_unique<CpuKvCache>(shape);
  }
  std::unique_ptr<RopeTable> make_rope_table(std::span<const float> cos_sin, int rotary_dim, bool interleaved) override;

  void begin_step(int n_rows) override { flags_.assign(n_rows, 0); }
  std::span<const std::uint8_t> end_step() override { return flags_; }

  void embed(const Embedding& table, std::span<const std::int32_t> tokens, float* out) override;
  void rms_norm(const float* x, const float* weight, int n_rows, int dim, float eps, float* out) override;
  void prepare_input(const float* x, int n_rows, LinearInput& input) override;
  void linear(const LinearInput& input, const Linear& weights, const float* bias, float* out) override;
  void rope(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows, const RopeTable& table) override;
  void store_kv(const float* k, const float* v, std::span<const TokenRow> rows, int layer) override;
  void attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                 float* out) override;
  void silu_mul(const float* gate, const float* up, std::size_t n, float* out) override;
  void add(float* x, const float* y, std::size_t n) override;
  void read(const float* source, std::span<float> destination) override {
    std::copy_n(source, destination.size(), destination.data());
  }

 private:
  // Calls body(i, thread) for i in [0, count). std::ref, because a std::function of the body itself would allocate.
  template <typename Body>
  void for_each(std::size_t count, std::size_t grain, const Body& body) {
    const auto range = [&](std::size_t begin, std::size_t end, int thread) {
      for (std::size_t i = begin; i < end; ++i) body(i, thread);
    };
    pool_.parallel_for(count, grain, std::ref(range));
  }
  // Grows once, where something is made that needs it.
  void reserve_scratch(std::size_t n_floats) {
    for (AlignedBuffer<float>& scratch : scratch_) {
      if (scratch.size() < n_floats) scratch = AlignedBuffer<float>(n_floats);
    }
  }
  // Several threads may hold heads of one row.
  void flag_row(std::size_t row, bool is_nonfinite) {
    if (is_nonfinite && row < flags_.size()) std::atomic_ref(flags_[row]).store(1, std::memory_order_relaxed);
  }

  const KernelTable& table_;
  ThreadPool pool_;
  std::vector<AlignedBuffer<float>> scratch_;  // one a thread
  std::vector<std::uint8_t> flags_;            // [n_rows]
};

Result<std::unique_ptr<Embedding>> CpuBackend::make_embedding(const TensorView& table) {
  switch (table.dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ8_0: {
      auto embedding = std::make_unique<CpuEmbedding>();
      embedding->vocab_size = static_cast<int>(table.rows());
      embedding->d_model = static_cast<int>(table.cols());
      embedding->table = table;
      return std::unique_ptr<Embedding>(std::move(embedding));
    }
    default:
      return Error{.message = "an embedding table of a type that nibble does not look up",
                   .tensor = std::string(table.name),
                   .found = std::string(dtype_name(table.dtype)),
                   .expected = "F32, F16, BF16 or Q8_0",
                   .hint = "convert the file with 'nibble quantize'"};
  }
}

std::unique_ptr<RopeTable> CpuBackend::make_rope_table(std::span<const float> cos_sin, int rotary_dim,
                                                       bool interleaved) {
  NIBBLE_CHECK(rotary_dim > 0 && rotary_dim % 2 == 0 && cos_sin.size() % rotary_dim == 0,
               "a rope table is [n_positions, rotary_dim / 2, 2]");
  auto table = std::make_unique<CpuRopeTable>();
  table->n_positions = static_cast<int>(cos_sin.size() / rotary_dim);
  table->rotary_dim = rotary_dim;
  table->interleaved = interleaved;
  table->cos_sin = AlignedBuffer<float>(cos_sin.size());
  std::ranges::copy(cos_sin, table->cos_sin.data());
  return table;
}

void CpuBackend::embed(const Embedding& embedding, std::span<const std::int32_t> tokens, float* out) {
  const TensorView& table = static_cast<const CpuEmbedding&>(embedding).table;
  const int n = embedding.d_model;
  for_each(tokens.size(), kTokenGrain, [&](std::size_t i, int) {
    NIBBLE_CHECK(tokens[i] >= 0 && tokens[i] < embedding.vocab_size, "a token outside of the vocabulary");
    const std::byte* row = table.row_span(tokens[i]).data();
    float* to = out + i * n;
    switch (table.dtype) {
      case DType::kF16:
        return table_.embed_f16(reinterpret_cast<const std::uint16_t*>(row), n, to);
      case DType::kBF16:
        return table_.embed_bf16(reinterpret_cast<const std::uint16_t*>(row), n, to);
      case DType::kQ8_0:
        return table_.embed_q8_0(reinterpret_cast<const std::uint8_t*>(row), n, to);
      default:
        std::copy_n(reinterpret_cast<const float*>(row), n, to);
    }
  });
}

void CpuBackend::rms_norm(const float* x, const float* weight, int n_rows, int dim, float eps, float* out) {
  for_each(n_rows, kTokenGrain,
           [&](std::size_t i, int) { table_.rms_norm(x + i * dim, weight, dim, eps, out + i * dim); });
}

void CpuBackend::prepare_input(const float* x, int n_rows, LinearInput& input) {
  auto& in = static_cast<CpuLinearInput&>(input);
  NIBBLE_CHECK(n_rows > 0 && n_rows <= in.max_rows, "more rows than the linear input was made for");
  in.n_rows = n_rows;
  in.x = x;
  const std::size_t stride = static_cast<std::size_t>(n_rows) * format::nc1::kBlock;
  for_each(n_rows, kTokenGrain, [&](std::size_t i, int) {
    const std::size_t first = i * format::nc1::kBlock;
    flag_row(i, table_.quantize_a11(x + i * in.n_in, in.n_in, stride, in.q.data() + first, in.q_split.data() + first,
                                    in.d.data() + i));
  });
}

void CpuBackend::linear(const LinearInput& input, const Linear& weights, const float* bias, float* out) {
  const auto& in = static_cast<const CpuLinearInput&>(input);
  NIBBLE_CHECK(in.n_in == weights.n_in && in.n_rows > 0, "a linear layer meets an input of another width");
  const Activations x{.q = in.q.data(),
                      .q_split = in.q_split.data(),
                      .d = in.d.data(),
                      .x = in.x,
                      .n_rows = in.n_rows,
                      .n_in = in.n_in,
                      .n_blocks = in.n_blocks};
  const auto& form = static_cast<const CpuLinear&>(weights).form;
  const auto run = [&](std::size_t begin, std::size_t end, int thread) {
    const LinearJob job{.bias = bias,
                        .out = out,
                        .scratch = scratch_[thread].data(),
                        .row_begin = static_cast<int>(begin),
                        .row_end = static_cast<int>(end)};
    if (const auto* nvfp4 = std::get_if<Nvfp4Linear>(&form)) {
      table_.linear_nvfp4(nvfp4->weights, x, job);
    } else if (const auto* rows16 = std::get_if<Rows16Linear>(&form)) {
      (rows16->is_bf16 ? table_.linear_bf16 : table_.linear_f16)(rows16->weights, x, job);
    } else if (const auto* q8 = std::get_if<Q8Linear>(&form)) {
      table_.linear_q8_0(q8->weights, x, job);
    } else {
      table_.linear_f32(std::get<F32Linear>(form).weights, x, job);
    }
  };
  pool_.parallel_for(weights.n_out, kTileRows, std::ref(run));
}

void CpuBackend::rope(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows, const RopeTable& table) {
  const auto& rope_table = static_cast<const CpuRopeTable&>(table);
  NIBBLE_CHECK(table.rotary_dim <= head_dim, "rope rotates more dimensions than a head has");
  for_each(rows.size(), kTokenGrain, [&](std::size_t i, int) {
    NIBBLE_CHECK(rows[i].pos >= 0 && rows[i].pos < table.n_positions, "a position beyond the rope table");
    table_.rope(x + i * n_heads * head_dim, n_heads, head_dim, rope_table.row(rows[i].pos), table.rotary_dim,
                table.interleaved);
  });
}

void CpuBackend::store_kv(const float* k, const float* v, std::span<const TokenRow> rows, int layer) {
  for_each(rows.size(), kTokenGrain, [&](std::size_t i, int thread) {
    auto& cache = static_cast<CpuKvCache&>(*rows[i].cache);
    const KvShape& shape = cache.shape;
    NIBBLE_CHECK(rows[i].pos >= 0 && rows[i].pos < shape.capacity, "a position beyond the KV cache");
    for (int head = 0; head < shape.n_kv_heads; ++head) {
      const KvSlot slot = cache.slot(layer, head, rows[i].pos);
      const std::size_t at = (i * shape.n_kv_heads + head) * shape.head_dim;
      float* scratch = scratch_[thread].data();
      flag_row(i, table_.store_key(cache.head_shape(), k + at, scratch, slot.key, slot.key_scale));
      flag_row(i, table_.store_value(cache.head_shape(), v + at, scratch, slot.value, slot.value_scale));
    }
  });
}

void CpuBackend::attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                           float* out) {
  NIBBLE_CHECK(shape.n_kv_heads > 0 && shape.n_heads % shape.n_kv_heads == 0,
               "query heads share key-value heads evenly");
  const int heads_per_kv = shape.n_heads / shape.n_kv_heads;
  const ScoreScale scale = score_scale(shape);
  // Later rows see more keys: taking rows from both ends in turn gives every thread the same work.
  const std::size_t n_rows = rows.size();
  const auto balanced = [n_rows](std::size_t i) { return i % 2 == 0 ? i / 2 : n_rows - 1 - i / 2; };
  for_each(n_rows * shape.n_heads, 1, [&](std::size_t task, int thread) {
    const std::size_t i = balanced(task / shape.n_heads) * shape.n_heads + task % shape.n_heads;
    const TokenRow& row = rows[i / shape.n_heads];
    auto& cache = static_cast<CpuKvCache&>(*row.cache);
    NIBBLE_CHECK(row.pos >= 0 && row.pos < cache.shape.capacity, "a position beyond the KV cache");
    const KvSlot first = cache.slot(layer, static_cast<int>(i % shape.n_heads) / heads_per_kv, 0);
    flag_row(i / shape.n_heads, table_.attention({.shape = cache.head_shape(),
                                                  .q = q + i * shape.head_dim,
                                                  .keys = first.key,
                                                  .key_scales = first.key_scale,
                                                  .values = first.value,
                                                  .value_scales = first.value_scale,
                                                  .n_keys = row.pos + 1,
                                                  .score_scale = scale.c,
                                                  .score_limit = scale.limit,
                                                  .out = out + i * shape.head_dim,
                                                  .scratch = scratch_[thread].data()}));
  });
}

void CpuBackend::silu_mul(const float* gate, const float* up, std::size_t n, float* out) {
  const auto run = [&](std::size_t begin, std::size_t end, int) {
    table_.silu_mul(gate + begin, up + begin, end - begin, out + begin);
  };
  pool_.parallel_for(n, kElementGrain, std::ref(run));
}

void CpuBackend::add(float* x, const float* y, std::size_t n) {
  const auto run = [&](std::size_t begin, std::size_t end, int) { table_.add(x + begin, y + begin, end - begin); };
  pool_.parallel_for(n, kElementGrain, std::ref(run));
}

}  // namespace
}  // namespace nibble::kernels::cpu

namespace nibble::kernels {

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options) {
  constexpr int kMaxThreads = 1024;
  int n_threads = options.n_threads;
  if (n_threads == 0) n_threads = hardware_threads();
  if (n_threads < 1 || n_threads > kMaxThreads) {
    return Error{.message = "a number of threads that cannot be",
                 .found = std::to_string(n_threads),
                 .expected = "1 to " + std::to_string(kMaxThreads) + ", or 0 for one per hardware thread"};
  }
  NIBBLE_ASSIGN(const cpu::KernelTable* table, cpu::select_isa(options.isa));
  NIBBLE_TRY(cpu::run_canary(*table));
  return std::unique_ptr<Backend>(std::make_unique<cpu::CpuBackend>(*table, n_threads));
}

}  // namespace nibble::kernels
