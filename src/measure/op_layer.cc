#include "measure/op_layer.h"

#include "kernels/registry.h"

namespace nibble::measure {

Result<OpLayer> OpLayer::create(const OpMachine& machine, const std::vector<OpWeights>& copies,
                                std::span<const float> x, int m, const OpShape& shape) {
  OpLayer layer;
  NIBBLE_ASSIGN(layer.backend_,
                kernels::make_backend(machine.backend, {.isa = machine.isa, .n_threads = machine.threads}));
  NIBBLE_TRY(layer.fill(copies, x, m, shape));
  return layer;
}

Status OpLayer::fill(const std::vector<OpWeights>& copies, std::span<const float> x, int m, const OpShape& shape) {
  m_ = m;
  for (const OpWeights& weights : copies) {
    NIBBLE_ASSIGN(linears_.emplace_back(), backend_->make_linear(weights.source()));
  }
  x_ = backend_->make_vector(x.first(static_cast<std::size_t>(m) * static_cast<std::size_t>(shape.k)));
  out_ = backend_->make_buffer(static_cast<std::size_t>(m) * static_cast<std::size_t>(shape.n));
  input_ = backend_->make_linear_input(m, shape.k);
  backend_->begin_step(m);
  backend_->prepare_input(x_->data(), m, *input_);
  backend_->end_step();
  return ok_status();
}

void OpLayer::pass() {
  backend_->begin_step(m_);
  for (const auto& linear : linears_) backend_->linear(*input_, *linear, nullptr, out_->data());
  backend_->end_step();
  float last = 0;
  backend_->read(out_->data(), {&last, 1});  // waits where a step ends before its work does
}

std::vector<float> OpLayer::outputs(std::size_t copy) {
  backend_->begin_step(m_);
  backend_->linear(*input_, *linears_[copy], nullptr, out_->data());
  backend_->end_step();
  std::vector<float> host(out_->size());
  backend_->read(out_->data(), host);
  return host;
}

}  // namespace nibble::measure
