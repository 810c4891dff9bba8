// The class of the CPU backend: cpu_backend.cc has its layers and what is elementwise, cpu_attention.cc rotation, the
// cache and attention.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/attention_call.h"
#include "kernels/cpu/cpu_linear_input.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/weights.h"
#include "kernels/host_memory.h"

namespace nibble::kernels::cpu {

// Below this number of rows a thread is not worth waking.
constexpr std::size_t kTokenGrain = 4;
constexpr std::size_t kSplitSlots = 1024;  // splits of heads whose sums wait to be merged

class CpuBackend final : public Backend {
 public:
  CpuBackend(const KernelTable& table, int n_threads, bool pins)
      : table_(table),
        pool_(n_threads, pins ? places_of_threads(n_threads) : std::vector<CpuMask>{}),
        scratch_(n_threads),
        head_states_(kSplitSlots),
        flags_(1) {}

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
  Result<std::unique_ptr<Embedding>> make_embedding(const WeightSource& table) override {
    return make_host_embedding(table);
  }
  std::unique_ptr<LinearInput> make_linear_input(int max_rows, int n_in) override;
  std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) override;
  std::uint64_t kv_cache_bytes(const KvShape& shape) const override { return kv_layout(shape).bytes; }
  std::unique_ptr<RopeTable> make_rope_table(std::span<const float> cos_sin, int rotary_dim,
                                             bool interleaved) override {
    return make_host_rope_table(cos_sin, rotary_dim, interleaved);
  }

  void begin_step(int n_flags) override {
    flags_.assign(n_flags, 0);
    pool_.pin_caller();
  }
  std::span<const std::uint8_t> end_step() override {
    pool_.release_caller();
    return flags_;
  }

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
  // Calls body(i, thread) for i in [0, count).
  template <typename Body>
  void for_each(std::size_t count, std::size_t grain, const Body& body) {
    const auto range = [&](std::size_t begin, std::size_t end, int thread) {
      for (std::size_t i = begin; i < end; ++i) body(i, thread);
    };
    pool_.parallel_for(count, grain, range);
  }
  void attend_in_splits(const AttentionCall& call, std::size_t row);
  using Gate = void (*)(const float* gate, const float* up, std::size_t n, float* out);
  void gate_all(Gate gate_mul, const float* gate, const float* up, std::size_t n, float* out);
  void gate_input(Gate gate_mul, const float* gate, const float* up, int n_rows, int dim, float* out,
                  LinearInput& input);
  void quantize(const float* x, int n, std::size_t row, int first_block, CpuLinearInput& in);
  void quantize_w4a4(const CpuLinearInput& in, const CpuLinear& linear);
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

}  // namespace nibble::kernels::cpu
