// A program beside us that answers line by line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble::measure {

class ChildProcess {
 public:
  // argv[0] is looked up in PATH. Its words to stderr are dropped where `quiet`.
  static Result<ChildProcess> start(const std::vector<std::string>& argv, bool quiet);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();  // closes the pipes, waits a second, kills

  Status write_line(std::string_view line);
  // The next line without its end; an Error if none came before the end of its output or within `timeout_s`.
  Result<std::string> read_line(double timeout_s);
  // Everything to the end of its output. The exit status must be 0.
  Result<std::string> read_all(double timeout_s);

 private:
  ChildProcess() = default;
  Result<bool> fill(double timeout_s);  // false: the output has ended
  Error error(std::string message) const;

  std::string name_;
  int pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string buffer_;
};

}  // namespace nibble::measure
