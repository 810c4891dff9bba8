// One linear layer on one backend, through the Backend's own interface, ready to be run again and again.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/backend.h"
#include "measure/op_data.h"

namespace nibble::measure {

struct OpShape {
  int n = 0;  // rows of the weights, outputs
  int k = 0;  // columns, inputs; what the format has rows of
};

// Where a layer runs.
struct OpMachine {
  std::string backend = "cpu";
  std::string isa = "auto";  // of the cpu backend
  int threads = 0;
  bool pins_threads = true;

  bool is_cpu() const { return backend == "cpu"; }
};

class OpLayer {
 public:
  // So many copies of `weights`, each at an address of its own; `weights` outlives the layer.
  static Result<OpLayer> create(const OpMachine& machine, const OpWeights& weights, std::size_t n_copies,
                                const OpShape& shape);
  // What the copies meet from now on: the first m rows of x [m or more, k].
  void meet(std::span<const float> x, int m);

  void pass(std::size_t n_copies);  // the first copies once, in turn; done when it returns, wherever it ran
  std::size_t n_copies() const { return linears_.size(); }
  std::vector<float> outputs(std::size_t copy);  // [m, n]

 private:
  Status make_copies(const OpWeights& weights, std::size_t n_copies);

  OpShape shape_;
  std::vector<OpWeights> sources_;  // of the copies of a backend that reads what it was given
  std::unique_ptr<kernels::Backend> backend_;
  std::vector<std::unique_ptr<kernels::Linear>> linears_;
  std::unique_ptr<kernels::Buffer> x_, out_;
  std::unique_ptr<kernels::LinearInput> input_;
  int m_ = 0;
};

}  // namespace nibble::measure
