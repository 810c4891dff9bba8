// The backend: every op as a launch on the device, recorded until the step is run. cuda_backend.cc has memory, layers
// and what is elementwise, cuda_attention.cc rotation, the cache and attention.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/cuda/buffers.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/step.h"
#include "kernels/cuda/weights.h"
#include "kernels/native_hint.h"

namespace nibble::kernels::cuda {

class CudaBackend final : public Backend {
 public:
  CudaBackend(Device device, Stream stream, bool use_graphs, std::optional<Nvfp4Route> route)
      : device_(std::move(device)),
        route_(route.value_or(Nvfp4Route::kAuto)),
        use_tensor_cores_(route.has_value()),
        stream_(std::move(stream)),
        loader_(stream_, route.has_value()),
        step_(stream_, use_graphs) {}

  std::string_view name() const override { return "cuda"; }
  std::string description() const override { return "cuda " + device_.description(); }

  bool has(Ability) const override { return true; }
  bool takes(DType dtype) const override { return has_kernel_for(dtype); }
  Status admit(const MemoryNeed& need) override;
  Status use_activations(ActivationFormat format) override;
  std::uint64_t weight_bytes(const WeightShape& weights) const override { return loader_.bytes_of(weights); }
  std::unique_ptr<Buffer> make_buffer(std::size_t n_floats) override;
  std::unique_ptr<Buffer> make_vector(std::span<const float> values) override;
  Result<std::unique_ptr<Linear>> make_linear(const WeightSource& weights) override {
    return hint_for(activations_, loader_.linear(weights));
  }
  Result<std::unique_ptr<Embedding>> make_embedding(const WeightSource& table) override {
    return hint_for(activations_, loader_.embedding(table));
  }
  std::unique_ptr<LinearInput> make_linear_input(int max_rows, int n_in) override;
  std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) override;
  std::uint64_t kv_cache_bytes(const KvShape& shape) const override { return CudaKvCache::bytes_of(shape); }
  std::unique_ptr<RopeTable> make_rope_table(std::span<const float> cos_sin, int rotary_dim, bool interleaved) override;
  Status made() override { return hint_for(activations_, std::exchange(made_, ok_status())); }

  void begin_step(int n_flags) override;
  std::span<const std::uint8_t> end_step() override {
    const auto flags = step_.end();
    outgrown_.clear();
    return flags;
  }
  Status fault() const override { return hint_for(activations_, step_.status()); }

  void embed(const Embedding& table, std::span<const std::int32_t> tokens, float* out) override;
  void rms_norm(const float* x, const float* weight, int n_rows, int dim, float eps, float* out) override;
  void prepare_input(const float* x, int n_rows, LinearInput& input) override;
  void linear(const LinearInput& input, const Linear& weights, const float* bias, float* out) override;
  void linears(const LinearInput& input, std::span<const LinearCall> calls) override;
  void rope(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows, const RopeTable& table) override;
  void store_kv(const float* k, const float* v, std::span<const TokenRow> rows, int layer) override;
  void attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                 float* out) override;
  void silu_mul(const float* gate, const float* up, std::size_t n, float* out) override {
    gate_all("silu_mul", Gate::kSilu, gate, up, n, out);
  }
  void gelu_mul(const float* gate, const float* up, std::size_t n, float* out) override {
    gate_all("gelu_mul", Gate::kGelu, gate, up, n, out);
  }
  void scale(float* x, float factor, std::size_t n) override;
  void add(float* x, const float* y, std::size_t n) override;
  void add_rows(const float* x, const float* y, std::span<const std::int32_t> indices, int dim, float* out) override;
  void read(const float* source, std::span<float> destination) override;

  void add_norm_input(float* x, const float* y, const float* weight, int n_rows, int dim, float eps, float* normed,
                      LinearInput& input) override;
  void rope_store_kv(float* q, int n_heads, float* k, const float* v, std::span<const TokenRow> rows, int layer,
                     const RopeTable& table) override;
  void attention_input(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                       float* out, LinearInput& input) override;
  void rope_attention_input(float* q, float* k, const float* v, std::span<const TokenRow> rows, int layer,
                            const RopeTable& table, const AttentionShape& shape, float* out,
                            LinearInput& input) override;
  void silu_mul_input(const float* gate, const float* up, int n_rows, int dim, float* out,
                      LinearInput& input) override {
    gate_input("silu_mul_input", Gate::kSilu, gate, up, n_rows, dim, out, input);
  }
  void gelu_mul_input(const float* gate, const float* up, int n_rows, int dim, float* out,
                      LinearInput& input) override {
    gate_input("gelu_mul_input", Gate::kGelu, gate, up, n_rows, dim, out, input);
  }

 private:
  void note(Status made);
  Status make_copy(DeviceMemory& memory, std::span<const float> values, const char* what);
  const DeviceRow* stage_rows(std::span<const TokenRow> rows);
  RopeArgs rope_args(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows, const RopeTable& table);
  StoreKvArgs kv_args(float* k, const float* v, std::span<const TokenRow> rows, int layer);
  AttentionArgs attention_args(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                               float* out, CudaLinearInput* input);
  void record_attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                        float* out, CudaLinearInput* input);
  void gate_all(const char* op, Gate kind, const float* gate, const float* up, std::size_t n, float* out);
  void gate_input(const char* op, Gate kind, const float* gate, const float* up, int n_rows, int dim, float* out,
                  LinearInput& input);
  void prepare_other_formats(const CudaLinearInput& in);
  void encode(const CudaLinearInput& in, float input_scale_inv);
  void record_nvfp4_alone(const CudaLinearInput& in, const DeviceNvfp4& weights, const LinearCall& call);
  bool are_different_caches(std::span<const TokenRow> rows);
  bool record_prompt_tiles(AttentionArgs args, std::span<const TokenRow> rows);
  void* scratch(DeviceMemory& memory, std::size_t bytes, const char* what);
  Status try_read(const float* source, std::span<float> destination);
  template <typename Args>
  void record(const char* name, const Args& args, std::array<int, 4> shape) {
    NIBBLE_CHECK(step_.is_open(), "an op outside of a step");
    step_.record(name, args, shape);
  }

  Device device_;
  Nvfp4Route route_;
  bool use_tensor_cores_;
  Stream stream_;
  ActivationFormat activations_ = ActivationFormat::kA11;
  WeightLoader loader_;
  Step step_;
  Status made_ = ok_status();           // the first failure since made() was asked
  std::vector<DeviceRow> rows_;         // scratch
  std::vector<const KvCache*> caches_;  // scratch
  std::vector<DeviceMemory> outgrown_;  // scratch that a step in the making may still use
  DeviceMemory partial_;                // sums of attention; grows
  DeviceMemory arrived_;                // how many thread blocks of a decoded head have ended; zeros, grows
  PinnedMemory answers_;                // what read() brings; grows
};

}  // namespace nibble::kernels::cuda
