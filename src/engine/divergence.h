// How far two models are apart on the same text: Kullback-Leibler divergence, agreement and perplexity by position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nibble::engine {

class Divergence {
 public:
  // Logits [vocab_size] of both at one position, and the token that follows in the text (-1: the text ends there).
  // Measured in f64 with the system's libm: statistics about the contract are not part of it.
  void add(std::span<const float> reference, std::span<const float> candidate, std::int32_t next_token);
  void merge(const Divergence& other);

  std::size_t n_positions() const { return kl_.size(); }
  double mean_kl() const;  // nats, of the candidate from the reference
  double kl_quantile(double q) const;
  double max_kl() const;
  double top1_agreement() const;  // share of positions
  double reference_perplexity() const;
  double candidate_perplexity() const;

 private:
  std::vector<double> kl_;
  std::size_t same_top1_ = 0;
  std::size_t n_scored_ = 0;  // positions with a next token
  double reference_nll_ = 0;
  double candidate_nll_ = 0;
};

}  // namespace nibble::engine
