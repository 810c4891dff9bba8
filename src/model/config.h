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
  RopeConfig rope;
};

// Reads "<architecture>.*" and the tensors that carry hyper-parameters (token_embd, rope_freqs). A missing, mistyped,
// out-of-range or contradictory value, or one that asks for arithmetic nibble does not have, is an error naming the
// key.
Result<Config> read_config(const GgufFile& file);

}  // namespace nibble::model
