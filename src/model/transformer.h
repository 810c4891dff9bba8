// The forward pass, the only one: prefill, decode and batches of every family go through here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/backend.h"
#include "model/config.h"
#include "model/weights.h"

namespace nibble::model {

// One step's work: rows of one or more sequences, each sequence's rows in increasing position.
struct Batch {
  std::span<const std::int32_t> tokens;      // [n_rows]
  std::span<const kernels::TokenRow> rows;   // [n_rows]
  std::span<const std::int32_t> logit_rows;  // rows whose logits are wanted, increasing
};

// Scratch memory of a forward pass of up to max_rows rows, on the backend.
struct Activations {
  Activations(const Config& config, kernels::Backend& backend, int max_rows);
  static std::uint64_t bytes(const Config& config, int max_rows);  // about

  int max_rows;
  std::unique_ptr<kernels::Buffer> residual;             // [max_rows, d_model]
  std::unique_ptr<kernels::Buffer> normed;               // [max_rows, d_model]
  std::unique_ptr<kernels::Buffer> q, attention;         // [max_rows, n_heads * head_dim]
  std::unique_ptr<kernels::Buffer> k, v;                 // [max_rows, n_kv_heads * head_dim]
  std::unique_ptr<kernels::Buffer> gate, up;             // [max_rows, d_ff]
  std::unique_ptr<kernels::Buffer> projected;            // [max_rows, d_model]: output of attn_output and of down
  std::unique_ptr<kernels::Buffer> last;                 // [min(max_rows, 16), d_model]: rows that want logits
  std::unique_ptr<kernels::Buffer> logits;               // [min(max_rows, 16), vocab_size]
  std::unique_ptr<kernels::LinearInput> from_model;      // n_in = d_model
  std::unique_ptr<kernels::LinearInput> from_attention;  // n_in = n_heads * head_dim
  std::unique_ptr<kernels::LinearInput> from_ff;         // n_in = d_ff
  std::unique_ptr<kernels::LinearInput> to_logits;       // n_in = d_model, min(max_rows, 16) rows
};

class Transformer {
 public:
  // n_positions: the longest sequence any cache will hold; the rope table has that many rows.
  Transformer(const Config& config, const Weights& weights, kernels::Backend& backend, int max_rows, int n_positions);

  // Runs the batch: keys and values of every row enter its cache, and logits [logit_rows.size(), vocab_size] are
  // written. A non-finite value anywhere is an error that names the row's position; the caches of the batch are then
  // unusable from that position on. A machine that fails is an error too, of this and every later call.
  Status forward(const Batch& batch, std::span<float> logits);

  int max_rows() const { return activations_.max_rows; }

 private:
  void embed(std::span<const std::int32_t> tokens);
  void attention_block(const LayerWeights& layer, int index, std::span<const kernels::TokenRow> rows);
  void norm_projected(const kernels::Buffer* weight, int n_rows);
  void feed_forward_block(const LayerWeights& layer, int n_rows);
  void head(std::span<const std::int32_t> rows);
  Status check_flags(std::span<const std::uint8_t> flags, const Batch& batch,
                     std::span<const std::int32_t> head_rows) const;

  const Config& config_;
  const Weights& weights_;
  kernels::Backend& backend_;
  Activations activations_;
  std::unique_ptr<kernels::RopeTable> rope_;
  std::unique_ptr<kernels::RopeTable> window_rope_;  // of the layers with a window; null without
  kernels::AttentionShape attention_shape_;
};

}  // namespace nibble::model
