// ggml's CPU kernels on a layer of the same shape and format, as a peer of `bench op`.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "measure/op_layer.h"
#include "measure/python_peer.h"

namespace nibble::measure {

struct GgmlTask {
  std::string format;  // of op_formats()
  OpShape shape;
  int m = 1;  // tokens at once
  int n_threads = 1;
  std::size_t bytes = 1;  // of weights that are multiplied in turn, at least; one matrix at least
};

// `python` has llama-cpp-python, whose libraries are used. Its samples are seconds of one matrix; they have no digest:
// ggml quantizes activations in a way of its own.
Result<PythonPeer> start_ggml(const std::string& python, const GgmlTask& task);

}  // namespace nibble::measure
