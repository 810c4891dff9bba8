// A file that appears under its name only when it is whole: written without a name in its folder, flushed to disk,
// named and renamed. Without commit(), after any failure, and where the process is killed, nothing is left and an older
// file of the name stays; one that is replaced leaves its permissions to the new one. Where a file system has no files
// without names it is written as NAME.partial-PID-N, which a killed process leaves behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace nibble {

class AtomicFile {
 public:
  // Refuses a path that is a folder, a device or a pipe, which a rename would replace. A symbolic link is followed.
  static Result<AtomicFile> create(const std::string& path);
  // Whether create() would do, at the start of work whose result goes there; leaves nothing behind. A file that is
  // one of `inputs`, also by way of a link, is refused: the result would take the place of what it was made of.
  static Status check(const std::string& path, std::span<const std::string> inputs = {});

  AtomicFile(AtomicFile&& other) noexcept { *this = std::move(other); }
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  Status write(std::span<const std::byte> bytes);
  Status commit();  // fsync, rename, fsync of the folder; nothing may be written afterwards
  std::uint64_t size() const { return size_; }

 private:
  AtomicFile() = default;
  Error system_error(const char* action, int code) const;
  void discard();
  // Calls make(name) for temporary names until it succeeds or fails with another errno than EEXIST.
  template <typename Make>
  bool name_temporary(const Make& make);

  int fd_ = -1;
  std::string path_;
  std::string temporary_;  // empty: no name yet
  std::uint64_t size_ = 0;
  int mode_ = -1;  // permissions of the file that is replaced; -1: of a new one
};

}  // namespace nibble
