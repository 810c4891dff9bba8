#include "engine/divergence.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace nibble::engine {
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

void Divergence::add(std::span<const float> reference, std::span<const float> candidate, std::int32_t next_token) {
  NIBBLE_CHECK(reference.size() == candidate.size() && !reference.empty(), "two rows of the same vocabulary");
  const Softmax p(reference);
  const Softmax q(candidate);
  double kl = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double log_p = p.log_probability(reference[i]);
    // The terms cancel to first order, so each is summed with its excess q/p - 1: what is left is second order and
    // keeps its digits down to 1e-16 nats.
    const double log_ratio = q.log_probability(candidate[i]) - log_p;
    kl += std::exp(log_p) * (std::expm1(log_ratio) - log_ratio);
  }
  kl_.push_back(kl);
  same_top1_ += p.top == q.top;
  if (next_token >= 0) {
    ++n_scored_;
    reference_nll_ -= p.log_probability(reference[next_token]);
    candidate_nll_ -= q.log_probability(candidate[next_token]);
  }
}

void Divergence::merge(const Divergence& other) {
  kl_.insert(kl_.end(), other.kl_.begin(), other.kl_.end());
  same_top1_ += other.same_top1_;
  n_scored_ += other.n_scored_;
  reference_nll_ += other.reference_nll_;
  candidate_nll_ += other.candidate_nll_;
}

double Divergence::mean_kl() const {
  double sum = 0;
  for (const double kl : kl_) sum += kl;
  return kl_.empty() ? 0 : sum / static_cast<double>(kl_.size());
}

double Divergence::kl_quantile(double q) const {
  if (kl_.empty()) return 0;
  std::vector<double> sorted = kl_;
  const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(sorted.size() - 1));
  std::nth_element(sorted.begin(), at, sorted.end());
  return *at;
}

double Divergence::max_kl() const {
  return kl_.empty() ? 0 : *std::max_element(kl_.begin(), kl_.end());
}

double Divergence::top1_agreement() const {
  return kl_.empty() ? 1 : static_cast<double>(same_top1_) / static_cast<double>(kl_.size());
}

double Divergence::reference_perplexity() const {
  return std::exp(reference_nll_ / static_cast<double>(n_scored_));
}
double Divergence::candidate_perplexity() const {
  return std::exp(candidate_nll_ / static_cast<double>(n_scored_));
}

}  // namespace nibble::engine
