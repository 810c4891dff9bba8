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
#include "kernels/cpu/attention_call.h"
#include "kernels/cpu/canary.h"
#include "kernels/cpu/detect.h"
#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/weights.h"
#include "kernels/host_memory.h"
#include "tensor/quant_block.h"

namespace nibble::kernels::cpu {
namespace {

// Below these sizes an op is not worth waking a thread for.
constexpr std::size_t kElementGrain = 8192;
constexpr std::size_t kTokenGrain = 4;
constexpr int kSegment = 1024;  // of a row, in values; a multiple of a block
constexpr std::size_t kSegmentGrain = 2;
constexpr std::size_t kJobsPerThread = 8;  // of attention, that divide evenly enough
constexpr std::size_t kSplitSlots = 1024;  // splits of heads whose sums wait to be merged

// One format of a matrix of activations.
struct Integers {
  Integers() = default;
  Integers(int max_rows, int max_planes, int n_blocks)
      : q(static_cast<std::size_t>(max_rows) * n_blocks * format::nc1::kBlock),
        planes(static_cast<std::size_t>(max_planes) * n_blocks),
        d(static_cast<std::size_t>(max_rows) * n_blocks) {}
  AlignedBuffer<std::int16_t> q;     // [n_blocks, n_rows, 64]: blocks of the current n_rows lie together
  AlignedBuffer<PlaneBlock> planes;  // [n_blocks, n_rows], up to max_planes rows
  AlignedBuffer<float> d;            // [n_blocks, n_rows]
};

struct CpuLinearInput final : LinearInput {
  CpuLinearInput(int rows, int columns, ActivationFormat format, bool takes_planes)
      : max_rows(rows),
        max_planes(takes_planes ? rows : std::min(rows, kMaxGemvTokens)),
        n_blocks((columns + 63) / 64),
        a11(max_rows, max_planes, n_blocks),
        sums(static_cast<std::size_t>(max_rows) * n_blocks * kSumsPerBlock) {
    if (format == ActivationFormat::kA16Q8) a16q8 = Integers(max_rows, max_planes, n_blocks);
    n_in = columns;
  }
  Activations view(const Integers& of) const {
    return {.q = of.q.data(),
            .planes = of.planes.data(),
            .d = of.d.data(),
            .sums = sums.data(),
            .x = x,
            .n_rows = n_rows,
            .n_in = n_in,
            .n_blocks = n_blocks};
  }
  int max_rows;
  int max_planes;  // of more rows there are no planes
  int n_blocks;
  Integers a11;
  Integers a16q8;                    // empty where NVFP4 weights meet a11
  AlignedBuffer<std::int16_t> sums;  // [n_blocks, n_rows, kSumsPerBlock], of a11
  const float* x = nullptr;
};

// False for NaN, and for what rounds to an infinity.
bool fits_f16(float x) {
  return format::abs_bits(x) < format::float_bits(65520.0F);
}

CpuLinearInput& start_input(const float* x, int n_rows, LinearInput& input) {
  auto& in = static_cast<CpuLinearInput&>(input);
  NIBBLE_CHECK(n_rows > 0 && n_rows <= in.max_rows, "more rows than the linear input was made for");
  in.n_rows = n_rows;
  in.x = x;
  return in;
}

std::size_t tiles_of(const Linear& weights) {
  return (static_cast<std::size_t>(weights.n_out) + kTileRows - 1) / kTileRows;
}

// w4a4: the integers of the input for these weights.
void run_linear(const KernelTable& table, const CpuLinear& weights, const CpuLinearInput& in, ActivationFormat format,
                const std::int16_t* w4a4, const LinearJob& job) {
  Activations x = in.view(in.a11);
  if (const auto* nvfp4 = std::get_if<Nvfp4Linear>(&weights.form)) {
    if (format == ActivationFormat::kA16Q8) return table.linear_nvfp4_a16q8(nvfp4->weights, in.view(in.a16q8), job);
    if (format == ActivationFormat::kW4A4) {
      x.q = w4a4;
      return table.linear_w4a4(nvfp4->weights, x, job);
    }
    table.linear_nvfp4(nvfp4->weights, x, job);
  } else if (const auto* rows16 = std::get_if<Rows16Linear>(&weights.form)) {
    table.linear_rows16(rows16->weights, x, job);
  } else if (const auto* q8 = std::get_if<Q8Linear>(&weights.form)) {
    table.linear_q8_0(q8->weights, x, job);
  } else if (const auto* quant = std::get_if<QuantLinear>(&weights.form)) {
    table.linear_quant[quant->type](quant->weights, x, job);
  } else {
    table.linear_f32(std::get<F32Linear>(weights.form).weights, x, job);
  }
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const KernelTable& table, int n_threads)
      : table_(table), pool_(n_threads), scratch_(n_threads), head_states_(kSplitSlots), flags_(1) {}

  std::string_view name() const override { return "cpu"; }
  std::string description() const override {
    return std::string("cpu ") + table_.isa + ", " + std::to_string(pool_.size()) +
           (pool_.size() == 1 ? " thread" : " threads");
  }

  bool has(Ability) const override { return true; }
  Status use_activations(ActivationFormat format) override {
    if (is_native(format)) return Backend::use_activations(format);
    activations_ = format;
    return ok_status();
  }
  std::unique_ptr<Buffer> make_buffer(std::size_t n_floats) override { return std::make_unique<HostBuffer>(n_floats); }
  std::unique_ptr<Buffer> make_vector(std::span<const float> values) override { return make_host_vector(values); }
  Result<std::unique_ptr<Linear>> make_linear(const WeightSource& weights) override;
  Result<std::unique_ptr<Embedding>> make_embedding(const TensorView& table) override {
    return make_host_embedding(table);
  }
  std::unique_ptr<LinearInput> make_linear_input(int max_rows, int n_in) override {
    NIBBLE_CHECK(max_rows > 0 && n_in > 0, "a linear input has rows and columns");
    const int n_blocks = (n_in + format::nc1::kBlock - 1) / format::nc1::kBlock;
    reserve_scratch(std::max(linear_scratch_floats(max_rows, n_blocks), table_.tile_scratch_floats));
    auto input = std::make_unique<CpuLinearInput>(max_rows, n_in, activations_, table_.takes_planes);
    const std::size_t w4a4_size = 2 * input->a11.q.size();
    if (activations_ == ActivationFormat::kW4A4 && w4a4_.size() < w4a4_size) {
      w4a4_ = AlignedBuffer<std::int16_t>(w4a4_size);
    }
    return input;
  }
  std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) override {
    reserve_scratch(attention_scratch_floats(shape.head_dim));
    const std::size_t sums = pool_.size() > 1 ? kSplitSlots * split_sums_floats(shape.head_dim) : 0;
    if (split_sums_.size() < sums) split_sums_ = AlignedBuffer<float>(sums);
    return std::make_unique<CpuKvCache>(shape);
  }
  std::uint64_t kv_cache_bytes(const KvShape& shape) const override { return kv_layout(shape).bytes; }
  std::unique_ptr<RopeTable> make_rope_table(std::span<const float> cos_sin, int rotary_dim,
                                             bool interleaved) override {
    return make_host_rope_table(cos_sin, rotary_dim, interleaved);
  }

  void begin_step(int n_flags) override { flags_.assign(n_flags, 0); }
  std::span<const std::uint8_t> end_step() override { return flags_; }

  void embed(const Embedding& table, std::span<const std::int32_t> tokens, float* out) override;
  void rms_norm(const float* x, const float* weight, int n_rows, int dim, float eps, float* out) override;
  void prepare_input(const float* x, int n_rows, LinearInput& input) override;
  void linear(const LinearInput& input, const Linear& weights, const float* bias, float* out) override {
    linears(input, {{{&weights, bias, out}}});
  }
  void linears(const LinearInput& input, std::span<const LinearCall> calls) override;
  void add_norm_input(float* x, const float* y, const float* weight, int n_rows, int dim, float eps, float* normed,
                      LinearInput& input) override;
  void silu_mul_input(const float* gate, const float* up, int n_rows, int dim, float* out,
                      LinearInput& input) override {
    gate_input(table_.silu_mul, gate, up, n_rows, dim, out, input);
  }
  void gelu_mul_input(const float* gate, const float* up, int n_rows, int dim, float* out,
                      LinearInput& input) override {
    gate_input(table_.gelu_mul, gate, up, n_rows, dim, out, input);
  }
  void rope_store_kv(float* q, int n_heads, float* k, const float* v, std::span<const TokenRow> rows, int layer,
                     const RopeTable& table) override;
  void rope(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows, const RopeTable& table) override;
  void store_kv(const float* k, const float* v, std::span<const TokenRow> rows, int layer) override;
  void attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                 float* out) override;
  void silu_mul(const float* gate, const float* up, std::size_t n, float* out) override {
    gate_all(table_.silu_mul, gate, up, n, out);
  }
  void gelu_mul(const float* gate, const float* up, std::size_t n, float* out) override {
    gate_all(table_.gelu_mul, gate, up, n, out);
  }
  void scale(float* x, float factor, std::size_t n) override;
  void add(float* x, const float* y, std::size_t n) override;
  void add_rows(const float* x, const float* y, std::span<const std::int32_t> indices, int dim, float* out) override;
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
  void attend_in_splits(const AttentionCall& call, std::size_t row);
  using Gate = void (*)(const float* gate, const float* up, std::size_t n, float* out);
  void gate_all(Gate gate_mul, const float* gate, const float* up, std::size_t n, float* out);
  void gate_input(Gate gate_mul, const float* gate, const float* up, int n_rows, int dim, float* out,
                  LinearInput& input);
  void quantize(const float* x, int n, std::size_t row, int first_block, CpuLinearInput& in);
  void quantize_w4a4(const CpuLinearInput& in, const CpuLinear& linear);
  static void extend_caches(std::span<const TokenRow> rows) {
    for (const TokenRow& row : rows) static_cast<CpuKvCache&>(*row.cache).extend(row.pos + 1);
  }
  void rope_row(float* x, int n_heads, int head_dim, const TokenRow& row, const RopeTable& table);
  void store_kv_row(const float* k, const float* v, std::size_t i, const TokenRow& row, int layer, int thread);
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

  ActivationFormat activations_ = ActivationFormat::kA11;  // of NVFP4 weights
  bool needs_a11_ = false;                                 // of weights that are neither NVFP4 nor F32, there are some
  bool needs_sums_ = false;                                // of activations over groups: some linear is block-quantized
  const KernelTable& table_;
  ThreadPool pool_;
  AlignedBuffer<std::int16_t> w4a4_;           // [n_blocks, n_rows, 2, 64] of the linear that runs
  PageArena arena_;                            // weights
  std::vector<AlignedBuffer<float>> scratch_;  // one a thread
  AlignedBuffer<float> split_sums_;            // [splits at once, n_heads, split_sums_floats]
  std::vector<HeadState> head_states_;         // [n_heads]
  std::vector<std::uint8_t> flags_;            // [n_rows]
};

Result<std::unique_ptr<Linear>> CpuBackend::make_linear(const WeightSource& weights) {
  NIBBLE_ASSIGN(std::unique_ptr<Linear> linear, make_cpu_linear(weights, table_, pool_, arena_, activations_));
  const auto& form = static_cast<const CpuLinear&>(*linear).form;
  needs_sums_ |= std::holds_alternative<QuantLinear>(form);
  needs_a11_ |= !std::holds_alternative<Nvfp4Linear>(form) && !std::holds_alternative<F32Linear>(form);
  return linear;
}

void CpuBackend::embed(const Embedding& embedding, std::span<const std::int32_t> tokens, float* out) {
  const TensorView& table = static_cast<const HostEmbedding&>(embedding).table;
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
      case DType::kF32:
        return static_cast<void>(std::copy_n(reinterpret_cast<const float*>(row), n, to));
      default:
        quant_row_to_f32(*find_quant_format(table.dtype), table.row_span(tokens[i]), to);
    }
  });
}

void CpuBackend::rms_norm(const float* x, const float* weight, int n_rows, int dim, float eps, float* out) {
  for_each(n_rows, kTokenGrain,
           [&](std::size_t i, int) { table_.rms_norm(x + i * dim, weight, dim, eps, out + i * dim); });
}

void CpuBackend::add_norm_input(float* x, const float* y, const float* weight, int n_rows, int dim, float eps,
                                float* normed, LinearInput& input) {
  auto& in = start_input(normed, n_rows, input);
  for_each(n_rows, kTokenGrain, [&](std::size_t i, int) {
    if (y != nullptr) table_.add(x + i * dim, y + i * dim, dim);
    table_.rms_norm(x + i * dim, weight, dim, eps, normed + i * dim);
    quantize(normed + i * dim, dim, i, 0, in);
  });
}

void CpuBackend::prepare_input(const float* x, int n_rows, LinearInput& input) {
  auto& in = start_input(x, n_rows, input);
  for_each(n_rows, kTokenGrain, [&](std::size_t i, int) { quantize(x + i * in.n_in, in.n_in, i, 0, in); });
}

// Rows are cut, so that one token's row is work for all threads.
void CpuBackend::gate_input(Gate gate_mul, const float* gate, const float* up, int n_rows, int dim, float* out,
                            LinearInput& input) {
  auto& in = start_input(out, n_rows, input);
  const int n_segments = (dim + kSegment - 1) / kSegment;
  for_each(static_cast<std::size_t>(n_rows) * n_segments, kSegmentGrain, [&](std::size_t task, int) {
    const std::size_t row = task / n_segments;
    const int begin = static_cast<int>(task % n_segments) * kSegment;
    const int n = std::min(kSegment, dim - begin);
    const std::size_t at = row * dim + begin;
    gate_mul(gate + at, up + at, n, out + at);
    quantize(out + at, n, row, begin / format::nc1::kBlock, in);
  });
}

// n values of a row, from the start of its block `first_block` on.
void CpuBackend::quantize(const float* x, int n, std::size_t row, int first_block, CpuLinearInput& in) {
  const std::size_t stride = static_cast<std::size_t>(in.n_rows) * format::nc1::kBlock;
  const std::size_t at = first_block * stride + row * format::nc1::kBlock;
  const auto into = [&](Integers& to, auto quantize_row) {
    PlaneBlock* planes = in.n_rows <= in.max_planes ? to.planes.data() + at / format::nc1::kBlock : nullptr;
    flag_row(in.first_flag + row,
             quantize_row(x, n, stride, to.q.data() + at, planes, to.d.data() + at / format::nc1::kBlock));
  };
  if (activations_ == ActivationFormat::kA16Q8) into(in.a16q8, table_.quantize_a16q8);
  if (activations_ == ActivationFormat::kW4A4) flag_row(in.first_flag + row, !std::all_of(x, x + n, fits_f16));
  if (activations_ == ActivationFormat::kA11 || needs_a11_) into(in.a11, table_.quantize_a11);
  if (needs_sums_) {
    const int n_blocks = (n + format::nc1::kBlock - 1) / format::nc1::kBlock;
    std::int16_t* sums = in.sums.data() + at / format::nc1::kBlock * kSumsPerBlock;
    table_.sum_groups(in.a11.q.data() + at, n_blocks, stride, sums);
  }
}

void CpuBackend::quantize_w4a4(const CpuLinearInput& in, const CpuLinear& linear) {
  const auto* nvfp4 = std::get_if<Nvfp4Linear>(&linear.form);
  if (nvfp4 == nullptr) return;
  NIBBLE_CHECK(in.n_in == linear.n_in, "a linear layer meets an input of another width");
  for_each(in.n_rows, kTokenGrain, [&](std::size_t i, int) {
    table_.quantize_w4a4(in.x + i * in.n_in, in.n_in, nvfp4->weights.input_scale_inv,
                         std::size_t{2} * format::nc1::kBlock * in.n_rows, w4a4_.data() + 2 * format::nc1::kBlock * i);
  });
}

void CpuBackend::linears(const LinearInput& input, std::span<const LinearCall> calls) {
  const auto& in = static_cast<const CpuLinearInput&>(input);
  if (activations_ == ActivationFormat::kW4A4) {  // each wants the input in its own way
    for (const LinearCall& call : calls.first(calls.size() - 1)) linears(input, {&call, 1});
    calls = calls.last(1);
    quantize_w4a4(in, static_cast<const CpuLinear&>(*calls[0].weights));
  }
  std::size_t n_tiles = 0;
  for (const LinearCall& call : calls) {
    NIBBLE_CHECK(in.n_in == call.weights->n_in && in.n_rows > 0, "a linear layer meets an input of another width");
    n_tiles += tiles_of(*call.weights);
  }
  // The tiles of all layers stand in one row, so that threads meet once for all of them.
  const auto run = [&](std::size_t begin, std::size_t end, int thread) {
    std::size_t first = 0;  // tile of the whole row where this layer starts
    for (const LinearCall& call : calls) {
      const std::size_t n = tiles_of(*call.weights);
      const std::size_t from = std::max(begin, first), to = std::min(end, first + n);
      if (from < to) {
        run_linear(table_, static_cast<const CpuLinear&>(*call.weights), in, activations_, w4a4_.data(),
                   {.bias = call.bias,
                    .out = call.out,
                    .scratch = scratch_[thread].data(),
                    .row_begin = static_cast<int>(from - first) * kTileRows,
                    .row_end = std::min(static_cast<int>(to - first) * kTileRows, call.weights->n_out)});
      }
      first += n;
    }
  };
  pool_.parallel_for(n_tiles, 1, std::ref(run));
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
    pool_.parallel_for(static_cast<std::size_t>(call.jobs_per_row()) * n, 1, std::ref(sum));
    for_each(call.jobs_per_row(), 1, [&](std::size_t job, int thread) {
      const int head = call.first_head(static_cast<int>(job));
      table_.attention_merge(call.job(i, static_cast<int>(job), scratch_[thread].data()), first, last, stride,
                             split_sums_.data() + head * floats, head_states_.data() + head);
    });
  }
}

void CpuBackend::gate_all(Gate gate_mul, const float* gate, const float* up, std::size_t n, float* out) {
  const auto run = [&](std::size_t begin, std::size_t end, int) {
    gate_mul(gate + begin, up + begin, end - begin, out + begin);
  };
  pool_.parallel_for(n, kElementGrain, std::ref(run));
}

void CpuBackend::scale(float* x, float factor, std::size_t n) {
  const auto run = [&](std::size_t begin, std::size_t end, int) { table_.scale(x + begin, factor, end - begin); };
  pool_.parallel_for(n, kElementGrain, std::ref(run));
}

void CpuBackend::add(float* x, const float* y, std::size_t n) {
  const auto run = [&](std::size_t begin, std::size_t end, int) { table_.add(x + begin, y + begin, end - begin); };
  pool_.parallel_for(n, kElementGrain, std::ref(run));
}

void CpuBackend::add_rows(const float* x, const float* y, std::span<const std::int32_t> indices, int dim, float* out) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::size_t at = static_cast<std::size_t>(indices[i]) * dim;
    std::copy_n(x + at, dim, out + i * dim);
    table_.add(out + i * dim, y + at, dim);
  }
}

}  // namespace

std::unique_ptr<Backend> make_backend_of(const KernelTable& table, int n_threads) {
  return std::make_unique<CpuBackend>(table, n_threads);
}

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
  return cpu::make_backend_of(*table, n_threads);
}

}  // namespace nibble::kernels
