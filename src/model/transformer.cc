#include "model/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace nibble::model {
namespace {

constexpr int kLogitRows = 16;

float* data_or_null(const std::unique_ptr<kernels::Buffer>& buffer) {
  return buffer ? buffer->data() : nullptr;
}

}  // namespace

Activations::Activations(const Config& c, kernels::Backend& backend, int rows) : max_rows(rows) {
  const auto floats = [&](std::size_t cols) { return backend.make_buffer(static_cast<std::size_t>(rows) * cols); };
  const int q_dim = c.n_heads * c.head_dim;
  const int kv_dim = c.n_kv_heads * c.head_dim;
  residual = floats(c.d_model);
  normed = floats(c.d_model);
  q = floats(q_dim);
  attention = floats(q_dim);
  k = floats(kv_dim);
  v = floats(kv_dim);
  gate = floats(c.d_ff);
  up = floats(c.d_ff);
  projected = floats(c.d_model);
  logits = backend.make_buffer(static_cast<std::size_t>(std::min(rows, kLogitRows)) * c.vocab_size);
  from_model = backend.make_linear_input(rows, c.d_model);
  from_attention = backend.make_linear_input(rows, q_dim);
  from_ff = backend.make_linear_input(rows, c.d_ff);
}

Transformer::Transformer(const Config& config, const Weights& weights, kernels::Backend& backend, int max_rows,
                         int n_positions)
    : config_(config),
      weights_(weights),
      backend_(backend),
      activations_(config, backend, max_rows),
      rope_(backend.make_rope_table(make_rope_table(config.rope, n_positions), config.rope.rotary_dim,
                                    config.architecture->rope_interleaved)),
      attention_shape_{.n_heads = config.n_heads,
                       .n_kv_heads = config.n_kv_heads,
                       .head_dim = config.head_dim,
                       .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)))} {}

void Transformer::attention_block(const LayerWeights& layer, int index, std::span<const kernels::TokenRow> rows) {
  Activations& a = activations_;
  const Config& c = config_;
  const int n_rows = static_cast<int>(rows.size());
  backend_.rms_norm(a.residual->data(), layer.attn_norm->data(), n_rows, c.d_model, c.rms_norm_eps, a.normed->data());
  backend_.prepare_input(a.normed->data(), n_rows, *a.from_model);
  backend_.linear(*a.from_model, *layer.q, data_or_null(layer.q_bias), a.q->data());
  backend_.linear(*a.from_model, *layer.k, data_or_null(layer.k_bias), a.k->data());
  backend_.linear(*a.from_model, *layer.v, data_or_null(layer.v_bias), a.v->data());
  backend_.rope(a.q->data(), c.n_heads, c.head_dim, rows, *rope_);
  backend_.rope(a.k->data(), c.n_kv_heads, c.head_dim, rows, *rope_);
  backend_.store_kv(a.k->data(), a.v->data(), rows, index);
  backend_.attention(a.q->data(), rows, index, attention_shape_, a.attention->data());
  backend_.prepare_input(a.attention->data(), n_rows, *a.from_attention);
  backend_.linear(*a.from_attention, *layer.attn_output, data_or_null(layer.attn_output_bias), a.projected->data());
  backend_.add(a.residual->data(), a.projected->data(), static_cast<std::size_t>(n_rows) * c.d_model);
}

void Transformer::feed_forward_block(const LayerWeights& layer, int n_rows) {
  Activations& a = activations_;
  const Config& c = config_;
  backend_.rms_norm(a.residual->data(), layer.ffn_norm->data(), n_rows, c.d_model, c.rms_norm_eps, a.normed->data());
  backend_.prepare_input(a.normed->data(), n_rows, *a.from_model);
  backend_.linear(*a.from_model, *layer.gate, nullptr, a.gate->data());
  backend_.linear(*a.from_model, *layer.up, nullptr, a.up->data());
  backend_.silu_mul(a.gate->data(), a.up->data(), static_cast<std::size_t>(n_rows) * c.d_ff, a.gate->data());
  backend_.prepare_input(a.gate->data(), n_rows, *a.from_ff);
  backend_.linear(*a.from_ff, *layer.down, nullptr, a.projected->data());
  backend_.add(a.residual->data(), a.projected->data(), static_cast<std::size_t>(n_rows) * c.d_model);
}

// Some wanted rows at a time: one read of the head, the largest matrix, serves them all, while a whole chunk of logits
// (600 KB a row at 152k tokens) would cost more memory than the rest of the scratch together.
void Transformer::write_logits(const Batch& batch, std::span<float> logits) {
  Activations& a = activations_;
  const Config& c = config_;
  const std::size_t group = std::min(kLogitRows, a.max_rows);
  for (std::size_t first = 0; first < batch.logit_rows.size(); first += group) {
    const std::size_t n = std::min(group, batch.logit_rows.size() - first);
    for (std::size_t i = 0; i < n; ++i) {
      const float* row = a.residual->data() + static_cast<std::size_t>(batch.logit_rows[first + i]) * c.d_model;
      backend_.rms_norm(row, weights_.output_norm->data(), 1, c.d_model, c.rms_norm_eps,
                        a.normed->data() + i * c.d_model);
    }
    backend_.prepare_input(a.normed->data(), static_cast<int>(n), *a.from_model);
    backend_.linear(*a.from_model, *weights_.output, nullptr, a.logits->data());
    backend_.read(a.logits->data(), logits.subspan(first * c.vocab_size, n * c.vocab_size));
  }
}

Status Transformer::forward(const Batch& batch, std::span<float> logits) {
  const int n_rows = static_cast<int>(batch.tokens.size());
  NIBBLE_CHECK(n_rows > 0 && n_rows <= max_rows(), "a batch has 1..max_rows rows");
  NIBBLE_CHECK(batch.rows.size() == batch.tokens.size(), "one TokenRow per token");
  NIBBLE_CHECK(logits.size() == batch.logit_rows.size() * config_.vocab_size, "logits are [logit_rows, vocab_size]");
  for (std::int32_t token : batch.tokens) NIBBLE_CHECK(token >= 0 && token < config_.vocab_size, "token out of range");

  backend_.begin_step(n_rows);
  backend_.embed(*weights_.embedding, batch.tokens, activations_.residual->data());
  for (int i = 0; i < config_.n_layers; ++i) {
    attention_block(weights_.layers[i], i, batch.rows);
    feed_forward_block(weights_.layers[i], n_rows);
  }
  const std::span<const std::uint8_t> nonfinite = backend_.end_step();
  for (int i = 0; i < n_rows; ++i) {
    if (nonfinite[i] != 0) {
      return Error{
          .message = fmt::format("a value of the forward pass is not finite at position {}", batch.rows[i].pos),
          .found = "NaN or infinity",
          .expected = "finite activations",
          .hint = "run 'nibble verify' on the model; nibble never continues on such values"};
    }
  }
  write_logits(batch, logits);
  const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return !std::isfinite(x); });
  if (bad != logits.end()) {
    const std::size_t row = static_cast<std::size_t>(bad - logits.begin()) / config_.vocab_size;
    return Error{.message = fmt::format("a logit is not finite at position {}", batch.rows[batch.logit_rows[row]].pos),
                 .found = "NaN or infinity",
                 .expected = "finite logits"};
  }
  return ok_status();
}

}  // namespace nibble::model
