// The class of the reference backend: reference_backend.cc has its layers and what is elementwise,
// reference_attention.cc rotation, the cache and attention.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "kernels/host_memory.h"
#include "kernels/reference/panel_gemm.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/reference/split_attention.h"
#include "oracle/activations.h"
#include "tensor/nvfp4_view.h"

namespace nibble::kernels::reference {

constexpr int kBlock = 64;

inline int round_up(int n, int step) {
  return (n + step - 1) / step * step;
}

struct ReferenceLinear final : Linear {
  enum class Form { kFloats, kIntegers, kCanonical, kNvfp4 };
  Form form = Form::kFloats;
  PanelMatrix panels;  // empty for the two below
  TensorView rows;     // of kCanonical: F32
  Nvfp4View nvfp4;     // of kNvfp4: a16q8 and w4a4, as the oracle has them
};

// One matrix in the forms that linears of the chosen arithmetic may want, rows padded with zeros to blocks of 64.
struct ReferenceInput final : LinearInput {
  ReferenceInput(int max_rows, int width)
      : stride(round_up(width, kBlock)),
        x(static_cast<std::size_t>(max_rows) * stride),
        q(x.size()),
        quantized(x.size()),
        d(x.size() / kBlock),
        ones(x.size() / kBlock),
        a16q8(max_rows) {
    std::ranges::fill(ones.span(), 1.0F);
  }
  int stride;
  AlignedBuffer<float> x;            // [max_rows, stride]: as given
  AlignedBuffer<float> q;            // [max_rows, stride]: integers of a11
  AlignedBuffer<float> quantized;    // [max_rows, stride]: q * d
  AlignedBuffer<float> d;            // [max_rows, stride / 64]
  AlignedBuffer<float> ones;         // [max_rows, stride / 64]
  std::vector<oracle::A16Q8> a16q8;  // [max_rows]
};

struct ReferenceCache final : KvCache {
  std::size_t bytes() const override {
    std::size_t n = 0;
    for (const HeadCache& h : heads) n += 4 * (h.keys.size() + h.values.size() + 2 * h.key_scales.size());
    return n;
  }
  HeadCache& head(int layer, int kv_head) {
    return heads[static_cast<std::size_t>(layer) * shape.n_kv_heads + kv_head];
  }
  std::vector<HeadCache> heads;  // [n_layers, n_kv_heads]
};

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(const ReferenceOptions& options) : options_(options), pool_(options.n_threads) {}

  std::string_view name() const override { return "reference"; }
  std::string description() const override {
    return fmt::format("reference, {} activations, {} attention, {} threads",
                       a11() ? activation_format_name(activations_) : "float",
                       integer_attention() ? "integer" : "float", pool_.size());
  }

  bool has(Ability) const override { return true; }
  Status use_activations(ActivationFormat format) override;
  std::unique_ptr<Buffer> make_buffer(std::size_t n) override { return std::make_unique<HostBuffer>(n); }
  std::unique_ptr<Buffer> make_vector(std::span<const float> values) override { return make_host_vector(values); }
  Result<std::unique_ptr<Linear>> make_linear(const WeightSource& weights) override;
  Result<std::unique_ptr<Embedding>> make_embedding(const WeightSource& table) override {
    return make_host_embedding(table);
  }
  std::unique_ptr<LinearInput> make_linear_input(int max_rows, int n_in) override;
  std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) override;
  std::unique_ptr<RopeTable> make_rope_table(std::span<const float> cos_sin, int rotary_dim,
                                             bool interleaved) override {
    return make_host_rope_table(cos_sin, rotary_dim, interleaved);
  }

  void begin_step(int n_flags) override { nonfinite_.assign(n_flags, 0); }
  std::span<const std::uint8_t> end_step() override { return nonfinite_; }

  void embed(const Embedding& table, std::span<const std::int32_t> tokens, float* out) override;
  void rms_norm(const float* x, const float* weight, int n_rows, int dim, float eps, float* out) override;
  void prepare_input(const float* x, int n_rows, LinearInput& input) override;
  void linear(const LinearInput& input, const Linear& weights, const float* bias, float* out) override;
  void rope(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows, const RopeTable& table) override;
  void store_kv(const float* k, const float* v, std::span<const TokenRow> rows, int layer) override;
  void attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                 float* out) override;
  void silu_mul(const float* gate, const float* up, std::size_t n, float* out) override;
  void gelu_mul(const float* gate, const float* up, std::size_t n, float* out) override;
  void scale(float* x, float factor, std::size_t n) override;
  void add(float* x, const float* y, std::size_t n) override;
  void add_rows(const float* x, const float* y, std::span<const std::int32_t> indices, int dim, float* out) override;
  void read(const float* source, std::span<float> destination) override {
    std::copy_n(source, destination.size(), destination.begin());
  }

 private:
  bool a11() const { return options_.activations == ReferenceActivations::kA11; }
  bool integer_attention() const { return options_.attention == ReferenceAttention::kInteger; }
  void mark_nonfinite(std::size_t row) {
    if (row < nonfinite_.size()) std::atomic_ref(nonfinite_[row]).store(1, std::memory_order_relaxed);
  }
  bool load_head(std::span<const float> x, int max, float* values, float& scale) const;
  void attend_group(const float* q, std::span<const TokenRow> rows, const AttentionShape& shape, int layer, int kv_head,
                    std::size_t first_row, std::size_t n_rows, float* out);
  void finish_head(HeadState& state, std::span<float> out) const;

  void multiply_nvfp4(const ReferenceInput& input, const ReferenceLinear& w, const float* bias, float* out);

  ReferenceOptions options_;
  ActivationFormat activations_ = ActivationFormat::kA11;
  ThreadPool pool_;
  std::vector<std::uint8_t> nonfinite_;
};

}  // namespace nibble::kernels::reference
