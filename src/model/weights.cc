#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "io/dequantize.h"
#include "model/tensor_specs.h"
#include "tensor/quant_block.h"

namespace nibble::model {
namespace {

using kernels::Backend;
using kernels::Buffer;
using kernels::Linear;
using kernels::WeightSource;

// Turns tensors, whose shapes check_tensors has seen, into what the backend wants.
class Loader {
 public:
  Loader(const Checkpoint& checkpoint, Backend& backend, WeightForm form, Weights& weights,
         const WeightProgress& progress)
      : checkpoint_(checkpoint),
        file_(checkpoint.file()),
        backend_(backend),
        form_(form),
        weights_(weights),
        progress_(progress) {
    for (const TensorView& tensor : file_.tensors()) total_bytes_ += tensor.bytes.size();
  }

  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

  // Norm weights and biases: F32, or 16-bit floats widened exactly.
  Result<std::unique_ptr<Buffer>> vector(const std::string& name) {
    NIBBLE_ASSIGN(const TensorView view, file_.require_tensor(name));
    if (view.dtype != DType::kF32 && view.dtype != DType::kF16 && view.dtype != DType::kBF16) {
      return wrong_dtype(view, "F32, F16 or BF16");
    }
    std::vector<float> values(view.cols());
    dequantize_row(view, 0, values);
    auto made = backend_.make_vector(values);
    if (Status status = backend_.made(); !status.ok()) return located(std::move(status).error(), view);
    return made;
  }

  Result<std::unique_ptr<Buffer>> bias(const std::string& name, Presence presence) {
    if (presence == Presence::kNever || !has(name)) return std::unique_ptr<Buffer>();
    return vector(name);
  }

  Result<std::unique_ptr<Linear>> linear(const std::string& name) {
    NIBBLE_ASSIGN(const TensorView view, file_.require_tensor(name));
    NIBBLE_ASSIGN(const WeightSource source, weight_source(view));
    auto made = backend_.make_linear(source);
    if (!made.ok()) return located(made.error(), view);
    if (!(*made)->reads_source) release(source);
    report(bytes_of(source));
    return std::move(*made);
  }

  Result<std::unique_ptr<kernels::Embedding>> embedding(const std::string& name) {
    NIBBLE_ASSIGN(const TensorView view, file_.require_tensor(name));
    NIBBLE_ASSIGN(const WeightSource source, weight_source(view));
    if (std::holds_alternative<Nvfp4View>(source))
      return wrong_dtype(view, "F32, F16, BF16, FP8, or one of Q4_0 to Q6_K");
    auto made = backend_.make_embedding(source);
    if (!made.ok()) return located(made.error(), view);
    report(view.bytes.size());
    return std::move(*made);
  }

  // Norms and biases travel uncounted, a tied head counts twice.
  void report(std::uint64_t more_bytes) {
    done_bytes_ = std::min(done_bytes_ + more_bytes, total_bytes_);
    if (progress_) progress_(done_bytes_, total_bytes_);
  }
  void report_all() { report(total_bytes_); }

 private:
  Error wrong_dtype(const TensorView& view, std::string expected) const {
    const bool quantized = dtype_info(view.dtype).block_size > 1;
    return Error{.message = fmt::format("{} is stored as {}", view.name, dtype_name(view.dtype)),
                 .file = file_.path_of(view),
                 .tensor = std::string(view.name),
                 .found = std::string(dtype_name(view.dtype)),
                 .expected = std::move(expected),
                 .hint = quantized ? "make an NVFP4 file of it first: nibble quantize MODEL -o OUT.gguf" : ""};
  }

  Error located(Error error, const TensorView& view) const {
    if (error.file.empty()) error.file = file_.path_of(view);
    if (error.tensor.empty()) error.tensor = std::string(view.name);
    return error;
  }

  static std::uint64_t bytes_of(const WeightSource& source) {
    const auto* nvfp4 = std::get_if<Nvfp4View>(&source);
    if (nvfp4 != nullptr) return nvfp4->codes.size() + nvfp4->scales.size();
    const auto* fp8 = std::get_if<Fp8View>(&source);
    return fp8 != nullptr ? fp8->codes.size() : std::get<TensorView>(source).bytes.size();
  }

  // What a backend has copied must not count as resident twice. Where it reads the file after all, pages come back.
  void release(const WeightSource& source) const {
    if (const auto* nvfp4 = std::get_if<Nvfp4View>(&source)) {
      file_.release(std::as_bytes(nvfp4->codes));
      file_.release(std::as_bytes(nvfp4->scales));
    } else if (const auto* fp8 = std::get_if<Fp8View>(&source)) {
      file_.release(std::as_bytes(fp8->codes));
    } else {
      file_.release(std::get<TensorView>(source).bytes);
    }
  }

  // The one place above the backends that looks at a dtype.
  Result<WeightSource> weight_source(const TensorView& view) {
    if (form_ == WeightForm::kFloat) return float_source(view);
    switch (view.dtype) {
      case DType::kNVFP4_E2M1:
      case DType::kF8_E4M3FN:
      case DType::kF32:
      case DType::kF16:
      case DType::kBF16:
        return checkpoint_.weight(view.name);
      default:
        if (find_quant_format(view.dtype) != nullptr) return checkpoint_.weight(view.name);
        return wrong_dtype(view, "NVFP4_E2M1, F8_E4M3FN, F32, F16, BF16, or one of Q4_0 to Q6_K");
    }
  }

  Result<WeightSource> float_source(const TensorView& view) {
    if (view.dtype != DType::kNVFP4_E2M1 && view.dtype != DType::kF8_E4M3FN && !can_dequantize(view.dtype)) {
      return wrong_dtype(view, "a type that nibble can dequantize");
    }
    NIBBLE_ASSIGN(const WeightSource source, checkpoint_.weight(view.name));
    AlignedBuffer<float> floats(view.rows() * view.cols());
    for (std::uint64_t row = 0; row < view.rows(); ++row) {
      const std::span<float> out = floats.span().subspan(row * view.cols(), view.cols());
      std::visit([row, out](const auto& weights) { dequantize_row(weights, row, out); }, source);
    }
    TensorView as_f32 = view;
    as_f32.dtype = DType::kF32;
    as_f32.bytes = std::as_bytes(std::span<const float>(floats.span()));
    weights_.floats.push_back(std::move(floats));
    return WeightSource(as_f32);
  }

  const Checkpoint& checkpoint_;
  const GgufFile& file_;
  Backend& backend_;
  WeightForm form_;
  Weights& weights_;
  const WeightProgress& progress_;
  std::uint64_t done_bytes_ = 0, total_bytes_ = 0;
};

Result<LayerWeights> load_layer(Loader& loader, const Config& c, int index) {
  const std::string p = fmt::format("blk.{}.", index);
  const Architecture& family = *c.architecture;
  LayerWeights w;
  NIBBLE_ASSIGN(w.attn_norm, loader.vector(p + "attn_norm.weight"));
  NIBBLE_ASSIGN(w.q, loader.linear(p + "attn_q.weight"));
  NIBBLE_ASSIGN(w.k, loader.linear(p + "attn_k.weight"));
  NIBBLE_ASSIGN(w.v, loader.linear(p + "attn_v.weight"));
  NIBBLE_ASSIGN(w.q_bias, loader.bias(p + "attn_q.bias", family.qkv_bias));
  NIBBLE_ASSIGN(w.k_bias, loader.bias(p + "attn_k.bias", family.qkv_bias));
  NIBBLE_ASSIGN(w.v_bias, loader.bias(p + "attn_v.bias", family.qkv_bias));
  if (family.qk_norm) {
    NIBBLE_ASSIGN(w.q_norm, loader.vector(p + "attn_q_norm.weight"));
    NIBBLE_ASSIGN(w.k_norm, loader.vector(p + "attn_k_norm.weight"));
  }
  NIBBLE_ASSIGN(w.attn_output, loader.linear(p + "attn_output.weight"));
  NIBBLE_ASSIGN(w.attn_output_bias, loader.bias(p + "attn_output.bias", family.output_bias));
  NIBBLE_ASSIGN(w.ffn_norm, loader.vector(p + "ffn_norm.weight"));
  NIBBLE_ASSIGN(w.gate, loader.linear(p + "ffn_gate.weight"));
  NIBBLE_ASSIGN(w.up, loader.linear(p + "ffn_up.weight"));
  NIBBLE_ASSIGN(w.down, loader.linear(p + "ffn_down.weight"));
  if (family.post_norms) {
    NIBBLE_ASSIGN(w.post_attention_norm, loader.vector(p + "post_attention_norm.weight"));
    NIBBLE_ASSIGN(w.post_ffw_norm, loader.vector(p + "post_ffw_norm.weight"));
  }
  return w;
}

}  // namespace

Result<Weights> load_weights(const Checkpoint& checkpoint, const Config& config, Backend& backend, WeightForm form,
                             const WeightProgress& progress) {
  std::vector<Error> faults = check_tensors(checkpoint.file(), config);
  if (!faults.empty()) return std::move(faults.front());
  Weights weights;
  Loader loader(checkpoint, backend, form, weights, progress);
  NIBBLE_ASSIGN(weights.embedding, loader.embedding("token_embd.weight"));
  // The head first: while a backend copies a tensor it is resident twice, and this is the largest.
  weights.tied_output = !loader.has("output.weight");
  NIBBLE_ASSIGN(weights.output, loader.linear(weights.tied_output ? "token_embd.weight" : "output.weight"));
  NIBBLE_ASSIGN(weights.output_norm, loader.vector("output_norm.weight"));
  for (int i = 0; i < config.n_layers; ++i) {
    NIBBLE_ASSIGN(LayerWeights layer, load_layer(loader, config, i));
    weights.layers.push_back(std::move(layer));
  }
  loader.report_all();
  return weights;
}

}  // namespace nibble::model
