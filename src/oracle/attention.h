// Integer attention (docs/contract.md, section 7): one query head of one token over quantized keys and values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/nc1.h"

namespace nibble::oracle {

constexpr int kKeyMax = format::nc1::kKeyMax;
constexpr int kQueryMax = format::nc1::kQueryMax;
constexpr int kValueMax = format::nc1::kValueMax;
constexpr int kWeightMax = format::nc1::kProbabilityMax;
constexpr int kSplitKeys = format::nc1::kSplit;

// x_i ~ q_i * scale. Not finite: q = 0 and scale = NaN.
struct QuantizedHead {
  std::vector<std::int16_t> q;  // [head_dim]
  float scale = 0;
  bool finite = true;
};
// Steps 1 and 2: the butterfly, then integers of at most `max` (kKeyMax, kQueryMax or kValueMax).
QuantizedHead quantize_head(std::span<const float> x, int max);

// The constants of step 3 for a softmax scale (usually 1 / sqrt(head_dim)).
struct ScoreScale {
  float c = 0;      // from a score to base-2 exponents
  float limit = 0;  // T: scores are clamped to [-T, T]
};
ScoreScale make_score_scale(float softmax_scale, int head_dim);

// Step 3: the weight of a key before normalization is p * 2^n.
struct Score {
  int n = 0;
  float p = 0;
};
Score key_score(const QuantizedHead& q, const QuantizedHead& k, const ScoreScale& scale);

// Step 4: what one split of at most 128 keys contributes.
struct SplitSum {
  int m = 0;                    // largest n
  std::int64_t r = 0;           // R, in units of 2^-21
  float e = 0;                  // unit of a
  std::vector<std::int64_t> a;  // A, [head_dim]
};
SplitSum attend_split(std::span<const Score> scores, std::span<const QuantizedHead> values);

// Step 5: the left fold over splits.
struct AttentionState {
  bool empty = true;
  int m = 0;
  float l = 0;
  std::vector<float> o;  // [head_dim]
};
void merge_split(const SplitSum& split, AttentionState& state);

// Steps 3 to 6. `keys` and `values` are those of positions 0 up to the token's own, which sees them from position
// `first_key` on (a sliding window).
void attention(const QuantizedHead& q, std::span<const QuantizedHead> keys, std::span<const QuantizedHead> values,
               float softmax_scale, std::span<float> out /* [head_dim] */, std::size_t first_key = 0);

}  // namespace nibble::oracle
