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
  int k = 0;  // columns, inputs; a multiple of 32
};

// Where a layer runs.
struct OpMachine {
  std::string backend = "cpu";
  std::string isa = "auto";  // of the cpu backend
  int threads = 0;

  bool is_cpu() const { return backend == "cpu"; }
};

class OpLayer {
 public:
  // `copies` of the matrix are taken in turn, so that none is found in a cache. x: at least [m, k].
  static Result<OpLayer> create(const OpMachine& machine, const std::vector<OpWeights>& copies,
                                std::span<const float> x, int m, const OpShape& shape);

  void pass();  // all copies once; done when it returns, wherever it ran
  std::size_t n_copies() const { return linears_.size(); }
  std::vector<float> outputs(std::size_t copy);  // [m, n]

 private:
  Status fill(const std::vector<OpWeights>& copies, std::span<const float> x, int m, const OpShape& shape);

  std::unique_ptr<kernels::Backend> backend_;
  std::vector<std::unique_ptr<kernels::Linear>> linears_;
  std::unique_ptr<kernels::Buffer> x_, out_;
  std::unique_ptr<kernels::LinearInput> input_;
  int m_ = 0;
};

}  // namespace nibble::measure
