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
  const int logit_rows = std::min(rows, kLogitRows);
  last = backend.make_buffer(static_cast<std::size_t>(logit_rows) * c.d_model);
  logits = backend.make_buffer(static_cast<std::size_t>(logit_rows) * c.vocab_size);
  from_model = backend.make_linear_input(rows, c.d_model);
  from_attention = backend.make_linear_input(rows, q_dim);
  from_ff = backend.make_linear_input(rows, c.d_ff);
  to_logits = backend.make_linear_input(logit_rows, c.d_model);
}

std::uint64_t Activations::bytes(const Config& c, int rows) {
  const std::uint64_t heads = std::uint64_t{2} * c.n_heads * c.head_dim + std::uint64_t{2} * c.n_kv_heads * c.head_dim;
  const std::uint64_t floats = std::uint64_t{3} * c.d_model + heads + std::uint64_t{2} * c.d_ff;
  const std::uint64_t inputs = std::uint64_t{1} * c.d_model + std::uint64_t{1} * c.n_heads * c.head_dim + c.d_ff;
  const std::uint64_t logits =
      std::min<std::uint64_t>(rows, kLogitRows) * (std::uint64_t{2} * c.d_model + c.vocab_size);
  return rows * (4 * floats + 5 * inputs) + 4 * logits;
}

Transformer::Transformer(const Config& config, const Weights& weights, kernels::Backend& backend, int max_rows,
                         int n_positions)
    : config_(config),
      weights_(weights),
      backend_(backend),
      activations_(config, backend, max_rows),
      rope_(backend.make_rope_table(make_rope_table(config.rope, n_positions), config.rope.rotary_dim,
                                    config.architecture->rope_interleaved)),
      window_rope_(config.window == 0
                       ? nullptr
                       : backend.make_rope_table(make_rope_table(config.window_rope, n_positions),
                                                 config.window_rope.rotary_dim, config.architecture->rope_interleaved)),
      attention_shape_{.n_heads = config.n_heads,
                       .n_kv_heads = config.n_kv_heads,
                       .head_dim = config.head_dim,
                       .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.score_width)))} {}

void Transformer::embed(std::span<const std::int32_t> tokens) {
  float* x = activations_.residual->data();
  backend_.embed(*weights_.embedding, tokens, x);
  if (!config_.architecture->scales_embeddings) return;
  backend_.scale(x, static_cast<float>(std::sqrt(static_cast<double>(config_.d_model))),
                 tokens.size() * config_.d_model);
}

// The output of a block waits in a.projected and is added to the residual by the norm that follows it.
void Transformer::attention_block(const LayerWeights& layer, int index, std::span<const kernels::TokenRow> rows) {
  Activations& a = activations_;
  const Config& c = config_;
  const int n_rows = static_cast<int>(rows.size());
  const float* ffn_output = index == 0 ? nullptr : a.projected->data();
  backend_.add_norm_input(a.residual->data(), ffn_output, layer.attn_norm->data(), n_rows, c.d_model, c.rms_norm_eps,
                          a.normed->data(), *a.from_model);
  const kernels::LinearCall qkv[] = {{layer.q.get(), data_or_null(layer.q_bias), a.q->data()},
                                     {layer.k.get(), data_or_null(layer.k_bias), a.k->data()},
                                     {layer.v.get(), data_or_null(layer.v_bias), a.v->data()}};
  backend_.linears(*a.from_model, qkv);
  if (layer.q_norm) {
    backend_.rms_norm(a.q->data(), layer.q_norm->data(), n_rows * c.n_heads, c.head_dim, c.rms_norm_eps, a.q->data());
    backend_.rms_norm(a.k->data(), layer.k_norm->data(), n_rows * c.n_kv_heads, c.head_dim, c.rms_norm_eps,
                      a.k->data());
  }
  kernels::AttentionShape shape = attention_shape_;
  if (c.has_window(index)) shape.window = c.window;
  backend_.rope_attention_input(a.q->data(), a.k->data(), a.v->data(), rows, index,
                                c.has_window(index) ? *window_rope_ : *rope_, shape, a.attention->data(),
                                *a.from_attention);
  backend_.linear(*a.from_attention, *layer.attn_output, data_or_null(layer.attn_output_bias), a.projected->data());
  norm_projected(layer.post_attention_norm.get(), n_rows);
}

// The norm that some families have between a block and its addition to the residual.
void Transformer::norm_projected(const kernels::Buffer* weight, int n_rows) {
  float* x = activations_.projected->data();
  if (weight) backend_.rms_norm(x, weight->data(), n_rows, config_.d_model, config_.rms_norm_eps, x);
}

void Transformer::feed_forward_block(const LayerWeights& layer, int n_rows) {
  Activations& a = activations_;
  const Config& c = config_;
  backend_.add_norm_input(a.residual->data(), a.projected->data(), layer.ffn_norm->data(), n_rows, c.d_model,
                          c.rms_norm_eps, a.normed->data(), *a.from_model);
  const kernels::LinearCall gate_up[] = {{layer.gate.get(), nullptr, a.gate->data()},
                                         {layer.up.get(), nullptr, a.up->data()}};
  backend_.linears(*a.from_model, gate_up);
  if (c.architecture->gate == Gate::kGelu) {
    backend_.gelu_mul_input(a.gate->data(), a.up->data(), n_rows, c.d_ff, a.gate->data(), *a.from_ff);
  } else {
    backend_.silu_mul_input(a.gate->data(), a.up->data(), n_rows, c.d_ff, a.gate->data(), *a.from_ff);
  }
  backend_.linear(*a.from_ff, *layer.down, nullptr, a.projected->data());
  norm_projected(layer.post_ffw_norm.get(), n_rows);
}

// Makes the logits of up to kLogitRows rows in a.logits.
void Transformer::head(std::span<const std::int32_t> rows) {
  Activations& a = activations_;
  const Config& c = config_;
  const int n_rows = static_cast<int>(rows.size());
  backend_.add_rows(a.residual->data(), a.projected->data(), rows, c.d_model, a.last->data());
  backend_.add_norm_input(a.last->data(), nullptr, weights_.output_norm->data(), n_rows, c.d_model, c.rms_norm_eps,
                          a.normed->data(), *a.to_logits);
  backend_.linear(*a.to_logits, *weights_.output, nullptr, a.logits->data());
}

// What the flags of a step say: layers raise those of the batch's rows, the head those that follow, one per wanted row.
Status Transformer::check_flags(std::span<const std::uint8_t> flags, const Batch& batch,
                                std::span<const std::int32_t> head_rows) const {
  const auto bad = std::find_if(flags.begin(), flags.end(), [](std::uint8_t flag) { return flag != 0; });
  if (bad == flags.end()) return ok_status();
  const std::size_t flag = static_cast<std::size_t>(bad - flags.begin());
  const std::size_t row = flag < batch.rows.size() ? flag : head_rows[flag - batch.rows.size()];
  return Error{.message = fmt::format("a value of the forward pass is not finite at position {}", batch.rows[row].pos),
               .found = "NaN or infinity",
               .expected = "finite activations",
               .hint = "run 'nibble verify' on the model; nibble never continues on such values"};
}

// The head runs some wanted rows at a time: one read of it, the largest matrix, serves them all, while a whole chunk of
// logits (600 KB a row at 152k tokens) would cost more memory than the rest of the scratch together. The first group
// belongs to the step of the layers, so that a decoded token is one step.
Status Transformer::forward(const Batch& batch, std::span<float> logits) {
  const int n_rows = static_cast<int>(batch.tokens.size());
  NIBBLE_CHECK(n_rows > 0 && n_rows <= max_rows(), "a batch has 1..max_rows rows");
  NIBBLE_CHECK(batch.rows.size() == batch.tokens.size(), "one TokenRow per token");
  NIBBLE_CHECK(logits.size() == batch.logit_rows.size() * config_.vocab_size, "logits are [logit_rows, vocab_size]");
  for (std::int32_t token : batch.tokens) NIBBLE_CHECK(token >= 0 && token < config_.vocab_size, "token out of range");

  const std::size_t group = std::min(kLogitRows, max_rows());
  std::span<const std::int32_t> wanted = batch.logit_rows;
  const auto take_group = [&] {
    const std::span<const std::int32_t> rows = wanted.first(std::min(group, wanted.size()));
    wanted = wanted.subspan(rows.size());
    return rows;
  };
  activations_.to_logits->first_flag = n_rows;
  std::span<const std::int32_t> head_rows = take_group();
  backend_.begin_step(n_rows + static_cast<int>(head_rows.size()));
  embed(batch.tokens);
  for (int i = 0; i < config_.n_layers; ++i) {
    attention_block(weights_.layers[i], i, batch.rows);
    feed_forward_block(weights_.layers[i], n_rows);
  }
  std::span<float> unread = logits;
  while (true) {
    if (!head_rows.empty()) head(head_rows);
    const std::span<const std::uint8_t> flags = backend_.end_step();
    NIBBLE_TRY(backend_.fault());
    NIBBLE_TRY(check_flags(flags, batch, head_rows));
    const std::size_t n_floats = head_rows.size() * config_.vocab_size;
    if (n_floats != 0) backend_.read(activations_.logits->data(), unread.first(n_floats));
    NIBBLE_TRY(backend_.fault());
    unread = unread.subspan(n_floats);
    if (wanted.empty()) break;
    head_rows = take_group();
    backend_.begin_step(n_rows + static_cast<int>(head_rows.size()));
  }
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
