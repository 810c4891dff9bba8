// One sequence: its cache, the tokens that are in it, and the logits after the last of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "model/model.h"
#include "model/transformer.h"

namespace nibble::engine {

struct SessionOptions {
  int n_ctx = 0;           // positions of the cache; 0: the model's context length, at most 8192
  int prefill_chunk = 64;  // rows of a prefill step; never changes a bit
};

using KeepGoing = std::function<bool()>;

class Session {
 public:
  // An error if n_ctx exceeds the model's context, or if its cache would not fit into memory.
  static Result<std::unique_ptr<Session>> create(model::Model& model, const SessionOptions& options);

  // Makes `tokens` the session's sequence and computes the logits after its last token. The longest common prefix with
  // what the cache holds is kept, if layers with a window still hold what follows it sees. Refuses an empty sequence
  // and one that does not fit, with the numbers. If `on_logits` is set, logits are computed at every new position and
  // handed to it in order: (position, [vocab_size]). `keep_going` is asked before each step; false ends it there, and
  // the session then holds the tokens that were computed, fewer than `tokens`.
  using LogitsCallback = std::function<void(std::int64_t position, std::span<const float> logits)>;
  Status prefill(std::span<const std::int32_t> tokens, const LogitsCallback& on_logits = {},
                 const KeepGoing& keep_going = {});
  // Forgets the sequence, so that the next prefill computes every position.
  void clear() { tokens_.clear(); }
  // Appends one token and computes the logits after it.
  Status decode(std::int32_t token);

  std::span<const float> logits() const { return logits_; }  // [vocab_size], after the last token
  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  int n_ctx() const { return cache_->shape.capacity; }
  std::size_t cache_bytes() const { return cache_->bytes(); }
  int reused_positions() const { return reused_; }  // of the last prefill

 private:
  Session(model::Model& model, const SessionOptions& options, int n_ctx);
  Status run_chunk(std::span<const std::int32_t> tokens, const LogitsCallback& on_logits, bool wants_last);
  Error does_not_fit(std::size_t n_tokens) const;

  model::Model& model_;
  model::Transformer transformer_;
  std::unique_ptr<kernels::KvCache> cache_;
  std::vector<std::int32_t> tokens_;      // in the cache, positions 0..size-1
  std::vector<kernels::TokenRow> rows_;   // scratch, [chunk]
  std::vector<std::int32_t> logit_rows_;  // scratch
  std::vector<float> logits_;             // [vocab_size]
  std::vector<float> all_logits_;         // [rows of a step, vocab_size], only with a LogitsCallback
  int chunk_;
  int reused_ = 0;
};

}  // namespace nibble::engine
