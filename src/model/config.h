// Hyper-parameters of a model, read from its file and checked. Immutable after load.
#pragma once

#include "base/result.h"
#include "io/gguf.h"
#include "model/architecture.h"
#include "model/rope_table.h"

namespace nibble::model {

struct Config {
  const Architecture* architecture = nullptr;
  int n_layers = 0;
  int d_model = 0;
  int d_ff = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int vocab_size = 0;      // rows of token_embd.weight
  int context_length = 0;  // positions the model was made for
  float rms_norm_eps = 0;
  int score_width = 0;  // scores are scaled by 1 / sqrt(score_width), which is head_dim but for some models
  RopeConfig rope;

  // Layers with a sliding window: all but the last of every window_period.
  int window = 0;  // positions that they see; 0: the model has no such layers
  int window_period = 0;
  RopeConfig window_rope;

  bool has_window(int layer) const { return window > 0 && (layer + 1) % window_period != 0; }
};

// Reads "<architecture>.*" and the tensors that carry hyper-parameters (token_embd, rope_freqs). A missing, mistyped,
// out-of-range or contradictory value, or one that asks for arithmetic nibble does not have, is an error naming the
// key.
Result<Config> read_config(const GgufFile& file);

}  // namespace nibble::model
