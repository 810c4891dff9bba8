// A regular file mapped read-only. Refused with words: a directory, a pipe or device, an empty file, one that may not
// be read. Limitation: if another process shortens the file while it is mapped, touching the lost pages raises SIGBUS;
// nibble's own writers therefore never truncate a file in place but rename a new one over it (base/atomic_file.h).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace nibble {

class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }  // page-aligned start; stays valid when the object moves

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

// Tells the system that these mapped bytes will not be needed soon, so that they stop counting as resident. Their
// content is unchanged and comes back from the file on the next access.
void release_pages(std::span<const std::byte> mapped_bytes);

}  // namespace nibble
