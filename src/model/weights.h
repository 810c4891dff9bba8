// The weights of a model on a backend. Immutable after load and shared by all sessions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "io/checkpoint.h"
#include "kernels/backend.h"
#include "model/config.h"

namespace nibble::model {

struct LayerWeights {
  std::unique_ptr<kernels::Buffer> attn_norm;  // [d_model]
  std::unique_ptr<kernels::Linear> q, k, v;    // [n_heads | n_kv_heads * head_dim, d_model]
  std::unique_ptr<kernels::Buffer> q_bias, k_bias, v_bias;
  std::unique_ptr<kernels::Buffer> q_norm, k_norm;  // [head_dim]
  std::unique_ptr<kernels::Linear> attn_output;     // [d_model, n_heads * head_dim]
  std::unique_ptr<kernels::Buffer> attn_output_bias;
  std::unique_ptr<kernels::Buffer> post_attention_norm;  // [d_model]
  std::unique_ptr<kernels::Buffer> ffn_norm;             // [d_model]
  std::unique_ptr<kernels::Linear> gate, up;             // [d_ff, d_model]
  std::unique_ptr<kernels::Linear> down;                 // [d_model, d_ff]
  std::unique_ptr<kernels::Buffer> post_ffw_norm;        // [d_model]
};

struct Weights {
  std::unique_ptr<kernels::Embedding> embedding;  // [vocab_size, d_model]
  std::vector<LayerWeights> layers;               // [n_layers]
  std::unique_ptr<kernels::Buffer> output_norm;   // [d_model]
  std::unique_ptr<kernels::Linear> output;        // [vocab_size, d_model]; the embedding table itself when tied
  bool tied_output = false;
  std::vector<AlignedBuffer<float>> floats;  // storage of dequantized tensors (WeightForm::kFloat)
};

enum class WeightForm {
  kAsStored,  // what the contract runs: NVFP4, FP8, F32, F16, BF16, Q4_0 to Q6_K; other types are refused
  kFloat,     // every matrix dequantized to F32: for measurements against float arithmetic, any type
};

// Hears how many bytes of the file's weights the backend has, of how many: after each matrix, the last call with all.
using WeightProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Every tensor of the file must be used, and every tensor the family needs must be there with the right shape.
Result<Weights> load_weights(const Checkpoint& checkpoint, const Config& config, kernels::Backend& backend,
                             WeightForm form, const WeightProgress& progress = {});

}  // namespace nibble::model
