#include "measure/divergence.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace nibble::measure {
namespace {

struct Softmax {
  double max;
  double log_sum;  // of exp(logit - max)
  std::size_t top;

  explicit Softmax(std::span<const float> logits) {
    const auto best = std::max_element(logits.begin(), logits.end());
    max = *best;
    top = static_cast<std::size_t>(best - logits.begin());
    double sum = 0;
    for (const float x : logits) sum += std::exp(x - max);
    log_sum = std::log(sum);
  }
  double log_probability(float logit) const { return logit - max - log_sum; }
};

}  // namespace

double negative_log_likelihood(std::span<const float> logits, std::int32_t token) {
  NIBBLE_CHECK(token >= 0 && static_cast<std::size_t>(token) < logits.size(), "a token of the vocabulary");
  return -Softmax(logits).log_probability(logits[static_cast<std::size_t>(token)]);
}

PositionDivergence diverge(std::span<const float> reference, std::span<const float> candidate,
                           std::int32_t next_token) {
  NIBBLE_CHECK(reference.size() == candidate.size() && !reference.empty(), "two rows of the same vocabulary");
  const Softmax p(reference);
  const Softmax q(candidate);
  PositionDivergence d{.same_top1 = p.top == q.top, .vocab_size = reference.size()};
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double log_p = p.log_probability(reference[i]);
    // The terms cancel to first order, so each is summed with its excess q/p - 1: what is left is second order and
    // keeps its digits down to 1e-16 nats.
    const double log_ratio = q.log_probability(candidate[i]) - log_p;
    d.kl += std::exp(log_p) * (std::expm1(log_ratio) - log_ratio);
    const double drift = std::abs(static_cast<double>(candidate[i]) - static_cast<double>(reference[i]));
    d.sum_drift += drift;
    d.max_drift = std::max(d.max_drift, drift);
  }
  if (next_token >= 0) {
    d.reference_nll = -p.log_probability(reference[static_cast<std::size_t>(next_token)]);
    d.candidate_nll = -q.log_probability(candidate[static_cast<std::size_t>(next_token)]);
  }
  return d;
}

DivergenceSummary summarize(std::span<const PositionDivergence> positions) {
  DivergenceSummary s;
  s.positions = positions.size();
  if (positions.empty()) return s;
  std::vector<double> kl;
  kl.reserve(positions.size());
  double reference_nll = 0, candidate_nll = 0, same = 0, drift = 0, logits = 0, sum_kl = 0;
  for (const PositionDivergence& p : positions) {
    kl.push_back(p.kl);
    sum_kl += p.kl;
    same += p.same_top1 ? 1 : 0;
    drift += p.sum_drift;
    logits += static_cast<double>(p.vocab_size);
    s.max_drift = std::max(s.max_drift, p.max_drift);
    if (!p.reference_nll) continue;
    ++s.scored;
    reference_nll += *p.reference_nll;
    candidate_nll += *p.candidate_nll;
  }
  const double n = static_cast<double>(s.positions);
  if (s.scored > 0) {
    s.reference_perplexity = std::exp(reference_nll / static_cast<double>(s.scored));
    s.candidate_perplexity = std::exp(candidate_nll / static_cast<double>(s.scored));
  }
  std::ranges::sort(kl);
  s.mean_kl = sum_kl / n;
  s.p99_kl = kl[static_cast<std::size_t>(0.99 * (n - 1))];
  s.max_kl = kl.back();
  s.top1_agreement = same / n;
  s.mean_drift = drift / logits;
  return s;
}

}  // namespace nibble::measure
