#include "kernels/backend.h"

namespace nibble::kernels {

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

void Backend::silu_mul_input(const float* gate, const float* up, int n_rows, int dim, float* out, LinearInput& input) {
  silu_mul(gate, up, static_cast<std::size_t>(n_rows) * dim, out);
  prepare_input(out, n_rows, input);
}

}  // namespace nibble::kernels
