#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/philox.h"
#include "format/contract_math.h"

namespace nibble::engine {
namespace {

constexpr int kWeightBits = 40;  // weight of the best candidate: 2^40

// floor(2^(40 + (logit - max) * c)), with the contract's exp2.
std::uint64_t fixed_point_weight(float logit, float max, float c) {
  const float below = logit - max;
  if (!(below * c > -static_cast<float>(kWeightBits) - 2.0F)) return 0;
  const float scaled = format::exp2_scaled(below, c);  // (0, 1]
  return static_cast<std::uint64_t>(std::ldexp(static_cast<double>(scaled), kWeightBits));
}

__extension__ using Wide = unsigned __int128;

std::uint64_t mul_high(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint64_t>(static_cast<Wide>(a) * b >> 64);
}

// top_p and min_p as exact fractions in units of 2^-32, rounded down.
std::uint64_t fixed_fraction(float x) {
  return static_cast<std::uint64_t>(static_cast<double>(x) * 0x1p32);
}

std::int32_t lowest_id_of_maxima(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

Error out_of_range(const char* name, double found, const char* expected) {
  return Error{.message = fmt::format("sampling parameter {} is out of range", name),
               .key = name,
               .found = fmt::format("{}", found),
               .expected = expected};
}

}  // namespace

Status check_sampling_params(const SamplingParams& p) {
  if (!(p.temperature >= 0) || !std::isfinite(p.temperature)) {
    return out_of_range("temperature", p.temperature, "0 (greedy) or a positive number");
  }
  if (p.temperature > 0 && p.temperature < 1e-3F)
    return out_of_range("temperature", p.temperature, "0, or at least 0.001");
  if (p.top_k < 0) return out_of_range("top_k", p.top_k, "0 (off) or more");
  if (!(p.top_p > 0 && p.top_p <= 1)) return out_of_range("top_p", p.top_p, "in (0, 1]");
  if (!(p.min_p >= 0 && p.min_p <= 1)) return out_of_range("min_p", p.min_p, "in [0, 1]");
  if (!(p.repetition_penalty > 0) || !std::isfinite(p.repetition_penalty)) {
    return out_of_range("repetition_penalty", p.repetition_penalty, "positive; 1 is off");
  }
  if (!std::isfinite(p.presence_penalty))
    return out_of_range("presence_penalty", p.presence_penalty, "finite; 0 is off");
  if (p.penalty_window < -1) return out_of_range("penalty_window", p.penalty_window, "-1 (all) or more");
  for (const auto& [token, bias] : p.logit_bias) {
    if (token < 0) return out_of_range("logit_bias", token, "a token id, 0 or more");
    if (!std::isfinite(bias)) return out_of_range("logit_bias", bias, "finite; -100 forbids a token in practice");
  }
  return ok_status();
}

Status check_sampling_params(const SamplingParams& p, int vocab_size) {
  NIBBLE_TRY(check_sampling_params(p));
  const auto last = p.logit_bias.rbegin();  // a map: the largest id
  if (last == p.logit_bias.rend() || last->first < vocab_size) return ok_status();
  Error error = out_of_range("logit_bias", last->first, "");
  error.expected = fmt::format("a token id of the vocabulary, 0 to {}", vocab_size - 1);
  return error;
}

void Sampler::apply_penalties(std::span<float> logits, std::span<const std::int32_t> history) const {
  if (params_.repetition_penalty != 1 || params_.presence_penalty != 0) {
    const std::size_t window =
        params_.penalty_window < 0 ? history.size() : static_cast<std::size_t>(params_.penalty_window);
    const auto recent = history.last(std::min(window, history.size()));
    std::vector<std::int32_t> seen(recent.begin(), recent.end());
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (const std::int32_t id : seen) {
      float& logit = logits[id];
      logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
      logit = logit - params_.presence_penalty;
    }
  }
  for (const auto& [id, bias] : params_.logit_bias) logits[id] = logits[id] + bias;
}

bool Sampler::changes_logits() const {
  return params_.repetition_penalty != 1 || params_.presence_penalty != 0 || !params_.logit_bias.empty();
}

std::int32_t Sampler::sample(std::span<const float> logits, std::span<const std::int32_t> history,
                             std::int64_t position) {
  if (changes_logits()) {
    changed_.assign(logits.begin(), logits.end());
    apply_penalties(changed_, history);
    logits = changed_;
  }
  return params_.temperature == 0 ? lowest_id_of_maxima(logits) : draw(logits, position);
}

// Keeps the shortest prefix, in order of preference, that holds top_p of the weight.
void Sampler::keep_top_p() {
  std::uint64_t total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  const Wide wanted = static_cast<Wide>(total) * fixed_fraction(params_.top_p);
  std::uint64_t sum = 0;
  std::size_t kept = 0;
  while (kept < candidates_.size()) {
    sum += candidates_[kept++].weight;
    if ((static_cast<Wide>(sum) << 32) >= wanted) break;
  }
  candidates_.resize(kept);
}

std::int32_t Sampler::draw(std::span<const float> logits, std::int64_t position) {
  const float max = *std::max_element(logits.begin(), logits.end());
  const float c = format::kLog2E / params_.temperature;
  candidates_.clear();
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const std::uint64_t weight = fixed_point_weight(logits[id], max, c);
    if (weight > 0) candidates_.push_back({logits[id], static_cast<std::int32_t>(id), weight});
  }
  const auto preferred = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const std::size_t k = static_cast<std::size_t>(params_.top_k);
  if (k > 0 && k < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + params_.top_k, candidates_.end(), preferred);
    candidates_.resize(k);
  }
  if (params_.top_p < 1) {
    std::sort(candidates_.begin(), candidates_.end(), preferred);
    keep_top_p();
  }
  if (params_.min_p > 0) {
    const Wide least = static_cast<Wide>(fixed_fraction(params_.min_p)) << kWeightBits;  // the best weighs 2^40
    std::erase_if(candidates_, [least](const Candidate& x) { return (static_cast<Wide>(x.weight) << 32) < least; });
  }
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  std::uint64_t total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  const std::uint64_t target =
      mul_high(philox_draw(params_.seed, static_cast<std::uint64_t>(position), params_.request), total);
  std::uint64_t sum = 0;
  for (const Candidate& candidate : candidates_) {
    sum += candidate.weight;
    if (sum > target) return candidate.id;
  }
  return candidates_.back().id;  // not reached: target < total
}

}  // namespace nibble::engine
