#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/out_of_memory.h"
#include "base/printable.h"

namespace nibble {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "not a regular file";
}

Error system_error(const char* action, const std::string& path, int code) {
  Error error{.message = fmt::format("cannot {} {}: {}", action, printable(path), std::strerror(code)), .file = path};
  if (code == EACCES) error.hint = "give yourself read permission on the file and search permission on its folders";
  if (code == ENOENT) error.hint = "check the path; a relative path is taken from the current folder";
  return error;
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe that nobody writes to must come back to be refused, not wait for a writer.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return system_error("open", path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return system_error("examine", path, errno);
  if (!S_ISREG(status.st_mode)) {
    return Error{.message = fmt::format("{} is {}, not a file", printable(path), kind_of(status.st_mode)),
                 .file = path,
                 .found = kind_of(status.st_mode),
                 .expected = "a regular file",
                 .hint = "pass the file itself; a stream must be saved to disk first"};
  }
  if (status.st_size == 0) {
    return Error{.message = fmt::format("{} is empty", printable(path)),
                 .file = path,
                 .found = "0 bytes",
                 .expected = "a file with content",
                 .hint = "the download or the program that wrote it was probably interrupted"};
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED && errno == ENOMEM) {
    Error error = not_enough_memory("the map of the file", size);
    error.file = path;
    return error;
  }
  if (address == MAP_FAILED) return system_error("map", path, errno);
  MappedFile mapped;
  mapped.path_ = path;
  mapped.bytes_ = {static_cast<const std::byte*>(address), size};
  mapped.fd_ = file.release();
  mapped.status_ = status;
  return mapped;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  if (fd_ >= 0) ::close(fd_);
}

Status MappedFile::check_unchanged() const {
  struct stat now {};
  if (::fstat(fd_, &now) != 0) return system_error("examine", path_, errno);
  const auto same = [](const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; };
  // A time of writing can be put back, that of a change of the file's state cannot. What else changes it is let pass
  // where it can be told: another name or one name less, owner and permissions.
  const bool is_restated = now.st_nlink != status_.st_nlink || now.st_mode != status_.st_mode ||
                           now.st_uid != status_.st_uid || now.st_gid != status_.st_gid;
  const bool is_untouched = same(now.st_mtim, status_.st_mtim) && (is_restated || same(now.st_ctim, status_.st_ctim));
  if (is_untouched && now.st_size == status_.st_size) return ok_status();
  return Error{.message = fmt::format("{} was written to while it was in use", printable(path_)),
               .file = path_,
               .found = fmt::format("{} bytes, another time of the last change", now.st_size),
               .expected = fmt::format("{} bytes, as it was opened", status_.st_size),
               .hint = "run again; who replaces a model should write a new file and rename it"};
}

void release_pages(std::span<const std::byte> mapped_bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(mapped_bytes.data());
  const std::uintptr_t begin = (address + page - 1) / page * page;  // only pages that lie wholly inside
  const std::uintptr_t end = (address + mapped_bytes.size()) / page * page;
  if (begin >= end) return;
  ::madvise(const_cast<std::byte*>(mapped_bytes.data()) + (begin - address), end - begin, MADV_DONTNEED);
}

}  // namespace nibble
