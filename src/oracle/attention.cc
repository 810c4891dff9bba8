#include "oracle/attention.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "format/contract_math.h"
#include "oracle/hadamard.h"

namespace nibble::oracle {
namespace {

using namespace format;

constexpr int kScoreChunk = nc1::kScoreChunk;
constexpr int kSmallestExponent = nc1::kExponentFloor;  // keys and splits this far below the largest count as nothing

// 2^n, or 0 where the contract drops the term.
float pow2_or_zero(int n) {
  return n < kSmallestExponent ? 0.0F : pow2(n);
}

}  // namespace

QuantizedHead quantize_head(std::span<const float> x, int max) {
  std::vector<float> rotated(x.begin(), x.end());
  hadamard(rotated);
  u32 max_bits = 0;
  for (const float v : rotated) max_bits = std::max(max_bits, abs_bits(v));
  const float largest = bits_float(max_bits);
  QuantizedHead head{std::vector<std::int16_t>(x.size())};
  if (is_nonfinite(largest)) {
    head.scale = std::numeric_limits<float>::quiet_NaN();
    head.finite = false;
    return head;
  }
  if (largest < nc1::kTiny) return head;
  const float inv = static_cast<float>(max) / largest;
  for (std::size_t i = 0; i < x.size(); ++i) head.q[i] = static_cast<std::int16_t>(rne(rotated[i], inv));
  head.scale = largest / static_cast<float>(max);
  return head;
}

ScoreScale make_score_scale(float softmax_scale, int head_dim) {
  const float per_score = (softmax_scale * kLog2E) / static_cast<float>(hadamard_size(head_dim));
  return {per_score, 0x1p20F / per_score};
}

Score key_score(const QuantizedHead& q, const QuantizedHead& k, const ScoreScale& scale) {
  float s = 0;
  for (std::size_t first = 0; first < q.q.size(); first += kScoreChunk) {
    std::int64_t sum = 0;
    for (std::size_t i = first; i < std::min(first + kScoreChunk, q.q.size()); ++i) sum += q.q[i] * k.q[i];
    s = first == 0 ? static_cast<float>(sum) : s + static_cast<float>(sum);
  }
  const float t = clamp_abs(s * (q.scale * k.scale), scale.limit);
  const int n = rne(t, scale.c);
  return {n, exp2_poly(fma_rn(t, scale.c, -static_cast<float>(n)))};
}

SplitSum attend_split(std::span<const Score> scores, std::span<const QuantizedHead> values) {
  NIBBLE_CHECK(!scores.empty() && scores.size() <= kSplitKeys && scores.size() == values.size(),
               "a split has 1 to 128 keys and as many values");
  SplitSum split{.m = scores[0].n, .a = std::vector<std::int64_t>(values[0].q.size())};
  for (const Score& score : scores) split.m = std::max(split.m, score.n);

  std::vector<float> w(scores.size());
  float largest = 0;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const int below = scores[j].n - split.m;
    if (below < kSmallestExponent) continue;
    w[j] = (scores[j].p * values[j].scale) * pow2(below);
    split.r += rne(scores[j].p, pow2(nc1::kSumBits + below));
    largest = std::max(largest, w[j]);
  }
  if (largest < nc1::kTinyWeight) return split;  // values too small to be seen; keeps the merge clear of subnormals

  const float inv = static_cast<float>(kWeightMax) / largest;
  split.e = largest / static_cast<float>(kWeightMax);
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const std::int64_t u = rne(w[j], inv);
    for (std::size_t i = 0; i < split.a.size(); ++i) split.a[i] += u * values[j].q[i];
  }
  return split;
}

void merge_split(const SplitSum& split, AttentionState& state) {
  if (state.empty) state = {false, split.m, 0, std::vector<float>(split.a.size())};
  const int m = std::max(state.m, split.m);
  const float a = pow2_or_zero(state.m - m);
  const float b = pow2_or_zero(split.m - m);
  for (std::size_t i = 0; i < state.o.size(); ++i) {
    float o = state.o[i] * a;
    if (a < 1 && abs_value(o) < nc1::kTinyOutput) o = 0;
    state.o[i] = fma_rn(static_cast<float>(split.a[i]), split.e * b, o);
  }
  state.l = fma_rn(static_cast<float>(split.r), b * pow2(-nc1::kSumBits), state.l * a);
  state.m = m;
}

void attention(const QuantizedHead& q, std::span<const QuantizedHead> keys, std::span<const QuantizedHead> values,
               float softmax_scale, std::span<float> out, std::size_t first_key) {
  NIBBLE_CHECK(first_key < keys.size() && keys.size() == values.size(), "attention needs a value for each of its keys");
  const ScoreScale scale = make_score_scale(softmax_scale, static_cast<int>(out.size()));
  AttentionState state;
  for (std::size_t first = first_key; first < keys.size();) {
    const std::size_t end = std::min((first / kSplitKeys + 1) * kSplitKeys, keys.size());
    std::vector<Score> scores;
    for (std::size_t j = first; j < end; ++j) scores.push_back(key_score(q, keys[j], scale));
    merge_split(attend_split(scores, values.subspan(first, end - first)), state);
    first = end;
  }
  const float normalize = (1.0F / static_cast<float>(hadamard_size(static_cast<int>(out.size())))) / state.l;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = state.o[i] * normalize;
  hadamard(out);
}

}  // namespace nibble::oracle
