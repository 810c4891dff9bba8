// A regular file mapped read-only. Refused with words: a directory, a pipe or device, an empty file, one that may not
// be read. Limitation: if another process shortens the file while it is mapped, touching the lost pages raises SIGBUS
// (apps/main.cc says so and ends); nibble's own writers therefore never truncate a file in place but rename a new one
// over it (base/atomic_file.h).
#pragma once

#include <sys/stat.h>

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
    std::swap(fd_, other.fd_);
    std::swap(status_, other.status_);
    return *this;
  }
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }  // page-aligned start; stays valid when the object moves
  // Refuses if the file was written to since it was opened: what was read before may be of other bytes than what is
  // read now. Another file of the same name is no matter.
  Status check_unchanged() const;

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
  int fd_ = -1;            // tells of changes, whatever has the name by then
  struct stat status_ {};  // when it was opened
};

// Tells the system that these mapped bytes will not be needed soon, so that they stop counting as resident. Their
// content is unchanged and comes back from the file on the next access.
void release_pages(std::span<const std::byte> mapped_bytes);

}  // namespace nibble
