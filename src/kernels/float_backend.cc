#include "kernels/float_backend.h"

#include "base/machine.h"
#include "kernels/reference/reference_backend.h"

namespace nibble::kernels {

std::unique_ptr<Backend> make_float_backend(int n_threads) {
  return make_reference_backend({.activations = ReferenceActivations::kFloat,
                                 .attention = ReferenceAttention::kFloat,
                                 .n_threads = n_threads > 0 ? n_threads : hardware_threads()});
}

}  // namespace nibble::kernels
