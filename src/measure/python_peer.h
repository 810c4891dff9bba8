// A peer that lives in a Python beside us and answers line by line (llama_driver.py, ggml_driver.py).
#pragma once

#include <string>

#include "base/result.h"
#include "measure/child_process.h"
#include "measure/contender.h"

namespace nibble::measure {

class PythonPeer {
 public:
  // Starts `driver` and sends `request`. The Error's message is what went wrong, in the peer's words if it has any.
  static Result<PythonPeer> start(const std::string& python, const char* driver, const Json& request);

  Result<Sample> sample();
  const std::string& description() const { return description_; }

 private:
  PythonPeer(ChildProcess child, std::string description)
      : child_(std::move(child)), description_(std::move(description)) {}

  ChildProcess child_;
  std::string description_;
};

}  // namespace nibble::measure
