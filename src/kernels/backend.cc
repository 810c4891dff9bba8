#include "kernels/backend.h"

#include <string>

#include "base/check.h"

namespace nibble::kernels {

SourceShape shape_of(const WeightSource& source) {
  if (const auto* tensor = std::get_if<TensorView>(&source)) return {tensor->name, tensor->rows(), tensor->cols()};
  if (const auto* nvfp4 = std::get_if<Nvfp4View>(&source)) return {nvfp4->name, nvfp4->rows, nvfp4->cols};
  const auto& fp8 = std::get<Fp8View>(source);
  return {fp8.name, fp8.rows, fp8.cols};
}

std::string_view ability_name(Ability ability) {
  switch (ability) {
    case Ability::kScale:
      return "embeddings that are scaled";
    case Ability::kGeluGate:
      return "GELU gates";
    case Ability::kWindow:
      return "sliding-window attention";
  }
  return "";
}

std::string_view activation_format_name(ActivationFormat format) {
  switch (format) {
    case ActivationFormat::kA11:
      return "a11";
    case ActivationFormat::kA16Q8:
      return "a16q8";
    case ActivationFormat::kW4A4:
      return "w4a4";
    case ActivationFormat::kNative:
      return "f16 with free sums";
    case ActivationFormat::kNativeFp4:
      return "NVFP4 with free sums";
  }
  return "";
}

Status Backend::use_activations(ActivationFormat format) {
  if (format == ActivationFormat::kA11) return ok_status();
  if (is_native(format)) {
    const std::string contract = format == ActivationFormat::kNative ? "native" : "native-fp4";
    return Error{.message = "contract " + contract + " is a GPU's own arithmetic, which the " + std::string(name()) +
                            " backend does not have",
                 .found = "backend " + std::string(name()),
                 .expected = "backend cuda",
                 .hint = "use {backend=cuda}; or {contract=nc1}, which is the same everywhere"};
  }
  return Error{.message = "the " + std::string(name()) + " backend has no kernels for activations of this format",
               .found = std::string(activation_format_name(format)),
               .expected = "a11, as in contracts nc1 and nk1",
               .hint = "use {backend=cpu}; or {contract=nc1}, to run the file in nibble's own arithmetic"};
}

// Three bytes an element and two scales (docs/contract.md, section 7, step 2), of every position.
std::uint64_t Backend::kv_cache_bytes(const KvShape& shape) const {
  return (std::uint64_t{3} * shape.head_dim + 8) * shape.n_layers * shape.n_kv_heads * shape.capacity;
}

void Backend::gelu_mul(const float*, const float*, std::size_t, float*) {
  NIBBLE_CHECK(false, "gelu_mul on a backend without Ability::kGeluGate");
}

void Backend::scale(float*, float, std::size_t) {
  NIBBLE_CHECK(false, "scale on a backend without Ability::kScale");
}

void Backend::add_norm_input(float* x, const float* y, const float* weight, int n_rows, int dim, float eps,
                             float* normed, LinearInput& input) {
  if (y != nullptr) add(x, y, static_cast<std::size_t>(n_rows) * dim);
  rms_norm(x, weight, n_rows, dim, eps, normed);
  prepare_input(normed, n_rows, input);
}

void Backend::linears(const LinearInput& input, std::span<const LinearCall> calls) {
  for (const LinearCall& call : calls) linear(input, *call.weights, call.bias, call.out);
}

void Backend::rope_store_kv(float* q, int n_heads, float* k, const float* v, std::span<const TokenRow> rows, int layer,
                            const RopeTable& table) {
  const KvShape& shape = rows[0].cache->shape;
  rope(q, n_heads, shape.head_dim, rows, table);
  rope(k, shape.n_kv_heads, shape.head_dim, rows, table);
  store_kv(k, v, rows, layer);
}

void Backend::attention_input(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                              float* out, LinearInput& input) {
  attention(q, rows, layer, shape, out);
  prepare_input(out, static_cast<int>(rows.size()), input);
}

void Backend::rope_attention_input(float* q, float* k, const float* v, std::span<const TokenRow> rows, int layer,
                                   const RopeTable& table, const AttentionShape& shape, float* out,
                                   LinearInput& input) {
  rope_store_kv(q, shape.n_heads, k, v, rows, layer, table);
  attention_input(q, rows, layer, shape, out, input);
}

void Backend::silu_mul_input(const float* gate, const float* up, int n_rows, int dim, float* out, LinearInput& input) {
  silu_mul(gate, up, static_cast<std::size_t>(n_rows) * dim, out);
  prepare_input(out, n_rows, input);
}

void Backend::gelu_mul_input(const float* gate, const float* up, int n_rows, int dim, float* out, LinearInput& input) {
  gelu_mul(gate, up, static_cast<std::size_t>(n_rows) * dim, out);
  prepare_input(out, n_rows, input);
}

}  // namespace nibble::kernels
