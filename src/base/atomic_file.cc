#include "base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/printable.h"

namespace nibble {
namespace {

constexpr int kMostNames = 1000;                         // that are tried for a temporary file
constexpr int kPermissions = 0777;                       // of an older file, that the new one takes over
constexpr std::size_t kLongestStem = 200;                // bytes of a file's name that its temporary name repeats
constexpr std::size_t kMaxWrite = std::size_t{1} << 30;  // some systems refuse more in one call

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(int fd) {
  return fmt::format("/proc/self/fd/{}", fd);
}

std::string resolve(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real ? std::string(real.get()) : path;  // a file that does not exist yet keeps the name that was given
}

// A file that is in the folder but has no name yet, so that a process that is killed leaves nothing; -1 where there is
// no such thing. It gets its name through /proc.
int open_unnamed(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (fd >= 0 && ::access(name_of(fd).c_str(), F_OK) == 0) return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

std::string free_space(const std::string& path) {
  struct statvfs status {};
  if (::statvfs(folder_of(path).c_str(), &status) != 0) return "unknown";
  return fmt::format("{} bytes", static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize);
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  AtomicFile file;
  file.path_ = resolve(path);
  struct stat status {};
  if (::stat(file.path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    return Error{.message = fmt::format("cannot write {}: it exists and is not a regular file", printable(path)),
                 .file = path,
                 .found = S_ISDIR(status.st_mode) ? "a directory" : "a device, pipe or socket",
                 .expected = "a new name, or a file to replace"};
  }
  // A file without a name would meet a name that cannot be at the very end.
  const bool replaces = ::lstat(file.path_.c_str(), &status) == 0;
  if (!replaces && errno != ENOENT) return file.system_error("create", errno);
  if (replaces) file.mode_ = status.st_mode & kPermissions;
  file.fd_ = open_unnamed(folder_of(file.path_));
  if (file.fd_ >= 0) return file;
  const bool is_named = file.name_temporary([&](const char* name) {
    file.fd_ = ::open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return file.fd_ >= 0;
  });
  if (!is_named) return file.system_error("create", errno);
  return file;
}

template <typename Make>
bool AtomicFile::name_temporary(const Make& make) {
  // A name as long as names may be has no room for more.
  const std::size_t folder = path_.rfind('/') == std::string::npos ? 0 : path_.rfind('/') + 1;
  const std::string stem = path_.substr(0, folder + kLongestStem);
  for (int attempt = 0; attempt <= kMostNames; ++attempt) {
    std::string name = fmt::format("{}.partial-{}-{}", stem, ::getpid(), attempt);
    if (make(name.c_str())) {
      temporary_ = std::move(name);
      return true;
    }
    if (errno != EEXIST) return false;
  }
  return false;
}

Status AtomicFile::check(const std::string& path, std::span<const std::string> inputs) {
  if (path.empty()) {
    return Error{
        .message = "the file to write has no name", .found = "an empty path", .expected = "the path of a file"};
  }
  for (const std::string& input : inputs) {
    std::error_code ignored;  // of a file that does not exist: then they are not one
    if (!std::filesystem::equivalent(input, path, ignored)) continue;
    return Error{.message = fmt::format("cannot write {}: it is an input itself", printable(path)),
                 .file = path,
                 .found = input == path ? "a file to read as well" : "another name of " + input,
                 .expected = "a new name, or a file to replace that is not read"};
  }
  NIBBLE_TRY(create(path));
  return ok_status();
}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(size_, other.size_);
  std::swap(mode_, other.mode_);
  return *this;
}

AtomicFile::~AtomicFile() {
  discard();
}

void AtomicFile::discard() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  fd_ = -1;
}

Error AtomicFile::system_error(const char* action, int code) const {
  Error error{.message = fmt::format("cannot {} {}: {}", action, printable(path_), std::strerror(code)), .file = path_};
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) {
    error.message = fmt::format("the disk is full: cannot {} {} ({})", action, printable(path_), std::strerror(code));
    error.found = fmt::format("{} bytes written, {} free", size_, free_space(path_));
    error.hint = "free some space or write to another disk; nothing was left under this name";
  } else if (code == EACCES || code == EROFS) {
    error.hint = fmt::format("the folder {} must be writable", printable(folder_of(path_)));
  } else if (code == ENOENT) {
    error.hint = fmt::format("the folder {} must exist", printable(folder_of(path_)));
  }
  return error;
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  NIBBLE_CHECK(fd_ >= 0, "write() after commit() or after a failure");
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), std::min(bytes.size(), kMaxWrite));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      Error error = system_error("write", n < 0 ? errno : ENOSPC);
      discard();
      return error;
    }
    size_ += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return ok_status();
}

Status AtomicFile::commit() {
  NIBBLE_CHECK(fd_ >= 0, "commit() twice or after a failure");
  const auto link = [this](const char* name) {
    return ::linkat(AT_FDCWD, name_of(fd_).c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
  };
  const bool has_mode = mode_ < 0 || ::fchmod(fd_, static_cast<mode_t>(mode_)) == 0;
  const bool is_whole = has_mode && ::fsync(fd_) == 0 && (!temporary_.empty() || name_temporary(link));
  if (!is_whole || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    Error error = system_error("finish", errno);
    discard();
    return error;
  }
  ::close(fd_);
  fd_ = -1;
  // The rename itself must survive a power cut. A folder that cannot be opened or synced is no reason to fail by now.
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  return ok_status();
}

}  // namespace nibble
