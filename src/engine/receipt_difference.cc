#include <fmt/format.h>

#include <algorithm>

#include "engine/receipt.h"

namespace nibble::engine {
namespace {

// Between completions whose tokens and position digests are equal: what else a receipt says must be true as well.
std::optional<Difference> other_difference(const Completion& a, const Completion& b) {
  const auto at = [&a](std::int64_t position, std::string description) {
    return Difference{a.first_digest_position + position, std::move(description)};
  };
  if (a.first_digest_position != b.first_digest_position) {
    return at(0, fmt::format("the digests start at position {} in the receipt, at {} here", a.first_digest_position,
                             b.first_digest_position));
  }
  const std::size_t n_prompt = a.position_digests.size() - std::min(a.position_digests.size(), a.tokens.size());
  for (std::size_t j = 0; j < a.tokens.size(); ++j) {
    if (bits_hex(a.token_logits[j]) == bits_hex(b.token_logits[j])) continue;
    return at(static_cast<std::int64_t>(n_prompt + j),
              fmt::format("token {}: recorded logit {}, here {}", a.tokens[j], bits_hex(a.token_logits[j]),
                          bits_hex(b.token_logits[j])));
  }
  if (a.logits_digest != b.logits_digest)
    return at(0, "the digest of the whole run differs from that of its positions");
  if (a.text != b.text) return at(0, "the same tokens, but another text");
  if (a.finish != b.finish && a.finish != FinishReason::kCancelled) {
    return at(0, fmt::format("recorded as ended by {}, here by {}", finish_reason_name(a.finish),
                             finish_reason_name(b.finish)));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Difference> first_difference(const Completion& a, const Completion& b) {
  const std::size_t n_digests = std::min(a.position_digests.size(), b.position_digests.size());
  const auto digest =
      std::mismatch(a.position_digests.begin(), a.position_digests.begin() + static_cast<std::ptrdiff_t>(n_digests),
                    b.position_digests.begin());
  const auto i = static_cast<std::size_t>(digest.first - a.position_digests.begin());
  const bool same = i == n_digests && a.tokens == b.tokens && a.position_digests == b.position_digests;
  if (same) return other_difference(a, b);

  // Sampled token j was drawn from the logits of digest j + (digests of the prompt but its last).
  const std::size_t n_prompt = a.position_digests.size() - std::min(a.position_digests.size(), a.tokens.size());
  const std::int64_t position = a.first_digest_position + static_cast<std::int64_t>(i);
  if (i < n_prompt) {
    return Difference{position, fmt::format("the logits at prompt position {} differ", position)};
  }
  const std::size_t j = i - n_prompt;
  const auto token = [j](const Completion& c) {
    return j < c.tokens.size() ? fmt::format("token {} with logit {:.9g} ({})", c.tokens[j], c.token_logits[j],
                                             bits_hex(c.token_logits[j]))
                               : std::string("no token");
  };
  return Difference{position, fmt::format("at position {}: recorded {}, here {}", position, token(a), token(b))};
}

}  // namespace nibble::engine
