// How far two models are apart on the same text: Kullback-Leibler divergence, agreement and logit drift of a position,
// and what many positions say together. In f64 with the system's libm: statistics about an answer are no part of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace nibble::measure {

// -log p(token) under softmax(logits), in nats.
double negative_log_likelihood(std::span<const float> logits, std::int32_t token);

struct PositionDivergence {
  double kl = 0;           // nats, of the candidate from the reference
  bool same_top1 = false;  // the first of the largest logits
  double sum_drift = 0;    // of |candidate logit - reference logit| over the vocabulary
  double max_drift = 0;
  std::size_t vocab_size = 0;
  std::optional<double> reference_nll = {}, candidate_nll = {};  // of the token that follows, where one does
};

// Logits [vocab_size] of both at one position, and the token that follows in the text (-1: the text ends there).
PositionDivergence diverge(std::span<const float> reference, std::span<const float> candidate, std::int32_t next_token);

struct DivergenceSummary {
  std::size_t positions = 0;
  std::size_t scored = 0;           // positions with a next token
  double reference_perplexity = 0;  // of the scored ones
  double candidate_perplexity = 0;
  double mean_kl = 0;
  double p99_kl = 0;  // the element at floor(0.99 * (positions - 1)) in order of size
  double max_kl = 0;
  double top1_agreement = 0;  // share of positions
  double mean_drift = 0;      // over positions and vocabulary
  double max_drift = 0;
};
DivergenceSummary summarize(std::span<const PositionDivergence> positions);

}  // namespace nibble::measure
