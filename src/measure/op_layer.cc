#include "measure/op_layer.h"

#include "kernels/registry.h"

namespace nibble::measure {

Result<OpLayer> OpLayer::create(const OpMachine& machine, const OpWeights& weights, std::size_t n_copies,
                                const OpShape& shape) {
  OpLayer layer;
  layer.shape_ = shape;
  NIBBLE_ASSIGN(layer.backend_, kernels::make_backend(machine.backend, {.isa = machine.isa,
                                                                        .n_threads = machine.threads,
                                                                        .pins_threads = machine.pins_threads}));
  NIBBLE_TRY(layer.make_copies(weights, n_copies));
  return layer;
}

Status OpLayer::make_copies(const OpWeights& weights, std::size_t n_copies) {
  for (std::size_t i = 0; i < n_copies; ++i) {
    const bool shares_bytes = i > 0 && linears_.front()->reads_source;
    if (shares_bytes) sources_.push_back(weights.copy());
    NIBBLE_ASSIGN(linears_.emplace_back(),
                  backend_->make_linear(shares_bytes ? sources_.back().source() : weights.source()));
  }
  return ok_status();
}

void OpLayer::meet(std::span<const float> x, int m) {
  m_ = m;
  x_ = backend_->make_vector(x.first(static_cast<std::size_t>(m) * static_cast<std::size_t>(shape_.k)));
  out_ = backend_->make_buffer(static_cast<std::size_t>(m) * static_cast<std::size_t>(shape_.n));
  input_ = backend_->make_linear_input(m, shape_.k);
  backend_->begin_step(m);
  backend_->prepare_input(x_->data(), m, *input_);
  backend_->end_step();
}

void OpLayer::pass(std::size_t n_copies) {
  backend_->begin_step(m_);
  for (std::size_t i = 0; i < n_copies; ++i) backend_->linear(*input_, *linears_[i], nullptr, out_->data());
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
