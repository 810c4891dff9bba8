// SHA-256 (OpenSSL) as lower-case hex, for files, receipts and digests of logits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace nibble {

using Digest = std::array<std::uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(std::span<const std::byte> bytes);
  void update(const std::string& text) { update(std::as_bytes(std::span(text))); }
  Digest finish();  // the object may be used for nothing else afterwards

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string to_hex(const Digest& digest);
std::string sha256_hex(std::span<const std::byte> bytes);
// Reads the file in pieces; `progress`, if set, is told the bytes read so far and may return false to stop.
Result<std::string> sha256_file(const std::string& path, const std::function<void(std::uint64_t)>& progress = {});

}  // namespace nibble
