#include "oracle/sampling.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/check.h"
#include "format/contract_math.h"

namespace nibble::oracle {
namespace {

using namespace format;
__extension__ typedef unsigned __int128 Wide;

// A fraction in [0, 1] in units of 2^-32, rounded down.
std::uint64_t fixed_fraction(float x) {
  return static_cast<std::uint64_t>(std::clamp(x, 0.0F, 1.0F) * 0x1p32F);
}

struct Candidate {
  std::int32_t token;
  std::uint64_t weight;
};

std::int32_t lowest_maximum(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
}

// Token ids by (logit descending, id ascending).
std::vector<std::int32_t> candidate_order(std::span<const float> logits) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  return order;
}

// The shortest prefix that holds top_p of the whole weight.
void keep_top_p(float top_p, std::vector<Candidate>& candidates) {
  if (top_p >= 1) return;
  Wide total = 0;
  for (const Candidate& c : candidates) total += c.weight;
  const Wide wanted = total * fixed_fraction(top_p);
  Wide sum = 0;
  std::size_t n = 0;
  do {
    sum += candidates[n++].weight;
  } while (n < candidates.size() && (sum << 32) < wanted);
  candidates.resize(n);
}

void keep_min_p(float min_p, std::vector<Candidate>& candidates) {
  const Wide least = Wide{candidates[0].weight} * fixed_fraction(min_p);
  std::erase_if(candidates, [&](const Candidate& c) { return (Wide{c.weight} << 32) < least; });
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

std::uint64_t token_noise(std::uint64_t seed, std::uint64_t position, std::uint64_t request) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const auto words =
      philox4x32_10({low(position), high(position), low(request), high(request)}, {low(seed), high(seed)});
  return words[0] | std::uint64_t{words[1]} << 32;
}

void apply_penalties(const SamplingParameters& parameters, std::span<const std::int32_t> context,
                     std::span<float> logits) {
  for (const std::int32_t token : std::set<std::int32_t>(context.begin(), context.end())) {
    float& logit = logits[token];
    if (parameters.repetition_penalty != 1) {
      logit = logit > 0 ? logit / parameters.repetition_penalty : logit * parameters.repetition_penalty;
    }
    logit = logit - parameters.presence_penalty;
  }
  for (const auto& [token, bias] : parameters.logit_bias) logits[token] = logits[token] + bias;
}

std::uint64_t fixed_point_weight(float x, float c) {
  const float limit = 64.0F / c;
  const float clamped = x < -limit ? -limit : x;
  const int n = rne(clamped, c);
  if (n < -41) return 0;
  const float p = exp2_poly(fma_rn(clamped, c, -static_cast<float>(n)));
  const auto units = static_cast<std::uint64_t>(p * 0x1p24F);  // exact: P lies in [0.7, 1.5)
  const int shift = n + 40 - 24;
  return shift >= 0 ? units << shift : units >> -shift;
}

std::int32_t select_token(const SamplingParameters& parameters, std::span<const float> logits, std::uint64_t noise) {
  NIBBLE_CHECK(!logits.empty(), "no logits to choose from");
  if (parameters.temperature < 0x1p-20F) return lowest_maximum(logits);

  const std::vector<std::int32_t> order = candidate_order(logits);
  const float c = kLog2E / parameters.temperature;
  const std::size_t n = parameters.top_k > 0 ? std::min<std::size_t>(parameters.top_k, order.size()) : order.size();
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < n; ++i) {
    candidates.push_back({order[i], fixed_point_weight(logits[order[i]] - logits[order[0]], c)});
  }
  keep_top_p(parameters.top_p, candidates);
  keep_min_p(parameters.min_p, candidates);

  std::ranges::sort(candidates, {}, &Candidate::token);
  std::uint64_t total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  const auto target = static_cast<std::uint64_t>((Wide{noise} * total) >> 64);
  std::uint64_t sum = 0;
  for (const Candidate& candidate : candidates) {
    sum += candidate.weight;
    if (sum > target) return candidate.token;
  }
  NIBBLE_CHECK(false, "the largest candidate has a weight, so the sum passes the target");
}

}  // namespace nibble::oracle
