#include "engine/logits_digest.h"

#include <bit>

namespace nibble::engine {

static_assert(std::endian::native == std::endian::little, "digests are over little-endian bytes");

void LogitsDigest::add(std::span<const float> logits) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(last_)));
  hash.update(std::as_bytes(logits));
  last_ = hash.finish();
  positions_.push_back(to_hex(last_));
}

}  // namespace nibble::engine
