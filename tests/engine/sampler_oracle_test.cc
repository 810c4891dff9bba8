// The engine's sampler, which sorts no more than it must, against the plain one of src/oracle.
#include <gtest/gtest.h>

#include "engine/sampler.h"
#include "oracle/sampling.h"
#include "tests/oracle/golden_inputs.h"

namespace nibble::engine {
namespace {

TEST(Sampler, ChoosesWhatTheOracleChooses) {
  const std::vector<std::int32_t> history = {60, 121, 182, 60, 999, 3, 4, 5};
  for (int i = 0; i < 400; ++i) {
    const std::uint64_t bits = oracle::token_noise(99, i, 0);
    const auto pick = [&](int shift, auto... values) {
      const std::array options = {values...};
      return options[bits >> shift & (options.size() - 1)];
    };
    SamplingParams params{.temperature = pick(0, 0.0F, 0.25F, 0.8F, 1.7F), .top_k = pick(4, 0, 1, 40, 700)};
    params.top_p = pick(8, 1.0F, 0.1F, 0.5F, 0.95F);
    params.min_p = pick(12, 0.0F, 0.0F, 0.02F, 0.3F);
    params.repetition_penalty = pick(16, 1.0F, 1.3F);
    params.presence_penalty = pick(20, 0.0F, 0.7F);
    params.seed = bits;
    params.request = i;
    if (pick(24, 0, 1) != 0) params.logit_bias = {{17, 2.5F}, {182, -3.0F}};

    std::vector<float> logits = oracle::golden::activations(i, 1000);
    if (pick(28, 0, 1) != 0) {
      for (float& x : logits) x = static_cast<float>(static_cast<int>(x));  // many ties
    }
    const std::int32_t found = Sampler(params).sample(logits, history, i);

    oracle::SamplingParameters plain{.temperature = params.temperature, .top_k = params.top_k, .top_p = params.top_p};
    plain.min_p = params.min_p;
    plain.repetition_penalty = params.repetition_penalty;
    plain.presence_penalty = params.presence_penalty;
    plain.logit_bias.assign(params.logit_bias.begin(), params.logit_bias.end());
    oracle::apply_penalties(plain, history, logits);
    ASSERT_EQ(found, oracle::select_token(plain, logits, oracle::token_noise(params.seed, i, params.request))) << i;
  }
}

}  // namespace
}  // namespace nibble::engine
