#include "base/sha256.h"

#include <openssl/evp.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

namespace nibble {

struct Sha256::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(md); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  NIBBLE_CHECK(EVP_DigestInit_ex(context_->md, EVP_sha256(), nullptr) == 1, "OpenSSL has no SHA-256");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  NIBBLE_CHECK(EVP_DigestUpdate(context_->md, bytes.data(), bytes.size()) == 1, "SHA-256 update failed");
}

Digest Sha256::finish() {
  Digest digest{};
  NIBBLE_CHECK(EVP_DigestFinal_ex(context_->md, digest.data(), nullptr) == 1, "SHA-256 final failed");
  return digest;
}

std::string to_hex(const Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (std::uint8_t byte : digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return to_hex(hash.finish());
}

Result<std::string> sha256_file(const std::string& path, const std::function<void(std::uint64_t)>& progress) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return Error{.message = std::string("cannot open file: ") + std::strerror(errno), .file = path};
  Sha256 hash;
  std::vector<std::byte> buffer(1 << 20);
  std::uint64_t total = 0;
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    hash.update(std::span(buffer).first(n));
    total += n;
    if (progress) progress(total);
  }
  if (std::ferror(file.get())) return Error{.message = "read error", .file = path};
  return to_hex(hash.finish());
}

}  // namespace nibble
