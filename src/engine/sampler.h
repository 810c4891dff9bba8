// Turns logits into a token (docs/contract.md, section 9). Deterministic: the same logits, history, parameters and
// position give the same token on every machine; the noise is a counter-based generator, not a stream.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/result.h"

namespace nibble::engine {

struct SamplingParams {
  float temperature = 0;                          // 0: greedy
  int top_k = 0;                                  // 0: off
  float top_p = 1;                                // 1: off
  float min_p = 0;                                // 0: off
  float repetition_penalty = 1;                   // divides positive logits of seen tokens, multiplies negative ones
  float presence_penalty = 0;                     // subtracted from the logits of seen tokens
  int penalty_window = 64;                        // how many of the last tokens count as seen; -1: all
  std::map<std::int32_t, float> logit_bias = {};  // added
  std::uint64_t seed = 0;
  std::uint64_t request = 0;  // tells apart requests that share a seed
};

// An error's key is the parameter that is out of range. With a vocabulary, the ids of logit_bias are held to it as
// well.
Status check_sampling_params(const SamplingParams& params);
Status check_sampling_params(const SamplingParams& params, int vocab_size);

class Sampler {
 public:
  explicit Sampler(SamplingParams params) : params_(std::move(params)) {}

  // logits: [vocab_size], finite. history: the tokens before this position, prompt included. position: the absolute
  // position of the token that is drawn.
  std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> history, std::int64_t position);

  const SamplingParams& params() const { return params_; }

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
    std::uint64_t weight;
  };
  bool changes_logits() const;
  void apply_penalties(std::span<float> logits, std::span<const std::int32_t> history) const;
  std::int32_t draw(std::span<const float> logits, std::int64_t position);
  void keep_top_p();

  SamplingParams params_;
  std::vector<Candidate> candidates_;  // scratch
  std::vector<float> changed_;         // scratch: [vocab_size] after penalties and bias
};

}  // namespace nibble::engine
