#include "measure/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

extern char** environ;  // NOLINT: POSIX leaves the declaration to us

namespace nibble::measure {
namespace {

void close_fd(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const std::vector<std::string>& argv, bool quiet) {
  ChildProcess child;
  child.name_ = argv.front();
  int in[2] = {-1, -1}, out[2] = {-1, -1};
  // A socket for its stdin: writing to one that has gone away is an error there, and a signal on a pipe.
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0 || pipe2(out, O_CLOEXEC) != 0) {
    close_fd(in[0]);
    close_fd(in[1]);
    return child.error(std::string("no pipe: ") + std::strerror(errno));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  if (quiet) posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments;
  arguments.reserve(argv.size() + 1);
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const int failed = posix_spawnp(&child.pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close_fd(in[0]);
  close_fd(out[1]);
  child.to_ = in[1];
  child.from_ = out[0];
  if (failed != 0) {
    child.pid_ = -1;
    return child.error(std::string("cannot be started: ") + std::strerror(failed));
  }
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : name_(std::move(other.name_)),
      pid_(std::exchange(other.pid_, -1)),
      to_(std::exchange(other.to_, -1)),
      from_(std::exchange(other.from_, -1)),
      buffer_(std::move(other.buffer_)) {}

ChildProcess::~ChildProcess() {
  close_fd(to_);
  close_fd(from_);
  for (int i = 0; pid_ > 0 && i < 100; ++i) {
    if (waitpid(pid_, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

Error ChildProcess::error(std::string message) const {
  return Error{.message = name_ + ": " + std::move(message), .file = name_};
}

Status ChildProcess::write_line(std::string_view line) {
  std::string text(line);
  text += '\n';
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = send(to_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return error("has gone away");
    done += static_cast<std::size_t>(n);
  }
  return ok_status();
}

Result<bool> ChildProcess::fill(double timeout_s) {
  pollfd ready = {.fd = from_, .events = POLLIN, .revents = 0};
  const int n = poll(&ready, 1, static_cast<int>(std::clamp(timeout_s, 0.0, 86400.0) * 1000));
  if (n == 0) return error("did not answer in time");
  std::array<char, 65536> piece;
  const ssize_t got = n < 0 ? -1 : read(from_, piece.data(), piece.size());
  if (got < 0) return errno == EINTR ? Result<bool>(true) : Result<bool>(error(std::strerror(errno)));
  buffer_.append(piece.data(), static_cast<std::size_t>(got));
  return got > 0;
}

Result<std::string> ChildProcess::read_line(double timeout_s) {
  for (;;) {
    const std::size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    NIBBLE_ASSIGN(const bool more, fill(timeout_s));
    if (!more) return error("ended without an answer");
  }
}

Result<std::string> ChildProcess::read_all(double timeout_s) {
  close_fd(to_);
  for (bool more = true; more;) {
    NIBBLE_ASSIGN(more, fill(timeout_s));
  }
  int status = 0;
  const int pid = std::exchange(pid_, -1);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return error(WIFEXITED(status) ? "exit status " + std::to_string(WEXITSTATUS(status)) : "was ended by a signal");
  }
  return std::exchange(buffer_, {});
}

}  // namespace nibble::measure
