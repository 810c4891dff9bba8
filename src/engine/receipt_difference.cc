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
  const auto [digest_a, digest_b] = std::ranges::mismatch(a.position_digests, b.position_digests);
  const bool same_digests = digest_a == a.position_digests.end() || digest_b == b.position_digests.end();
  const auto [token_a, token_b] = std::ranges::mismatch(a.tokens, b.tokens);
  const bool same_tokens = token_a == a.tokens.end() && token_b == b.tokens.end();

  // Sampled token j was drawn from the logits of digest j + (digests of the prompt but its last).
  const std::size_t n_prompt = a.position_digests.size() - std::min(a.position_digests.size(), a.tokens.size());
  const auto digest = static_cast<std::size_t>(digest_a - a.position_digests.begin());
  const std::size_t drawn_from = n_prompt + static_cast<std::size_t>(token_a - a.tokens.begin());
  if (same_digests && same_tokens) {
    if (a.position_digests.size() == b.position_digests.size()) return other_difference(a, b);
    return Difference{a.first_digest_position + static_cast<std::int64_t>(digest),
                      fmt::format("the receipt has the digests of {} positions, here are {}", a.position_digests.size(),
                                  b.position_digests.size())};
  }
  const std::size_t i = same_digests ? drawn_from : same_tokens ? digest : std::min(digest, drawn_from);
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
