#include "measure/ggml_peer.h"

#include <fmt/format.h>

#include "measure/python_drivers.h"

namespace nibble::measure {
namespace {

constexpr int kGgmlNvfp4Block = 64;

}  // namespace

Result<PythonPeer> start_ggml(const std::string& python, const GgmlTask& task) {
  if (task.format == "nvfp4" && task.shape.k % kGgmlNvfp4Block != 0) {
    return Error{.message = "ggml has no NVFP4 row of this length",
                 .found = fmt::format("K = {}", task.shape.k),
                 .expected = fmt::format("a multiple of {}", kGgmlNvfp4Block)};
  }
  auto peer = PythonPeer::start(python, kGgmlDriver,
                                {{"format", task.format},
                                 {"n", task.shape.n},
                                 {"k", task.shape.k},
                                 {"m", task.m},
                                 {"threads", task.n_threads},
                                 {"bytes", task.bytes}});
  if (peer.ok()) return peer;
  return Error{
      .message = "ggml cannot be run beside nibble: " + peer.error().message,
      .found = python,
      .expected = "a Python with llama-cpp-python",
      .hint =
          "pip install llama-cpp-python and name its Python ({python}); on a machine with AMX it must be built with "
          "GGML_NATIVE=OFF"};
}

}  // namespace nibble::measure
