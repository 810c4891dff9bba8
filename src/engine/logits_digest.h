// A chained digest of logits: digest_i = SHA-256(digest_{i-1} || logits_i), f32 little-endian, digest_{-1} = 32 zero
// bytes. One digest per position; equal digests at i mean equal logits at every position up to i.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/sha256.h"

namespace nibble::engine {

class LogitsDigest {
 public:
  void add(std::span<const float> logits);
  const std::vector<std::string>& positions() const { return positions_; }  // hex, one per add
  std::string whole() const { return to_hex(last_); }

 private:
  Digest last_{};
  std::vector<std::string> positions_;
};

}  // namespace nibble::engine
