#include "kernels/none/not_built.h"
#include "kernels/optional_backends.h"

namespace nibble::kernels {

std::string why_no_cuda() {
  return "this binary was built without CUDA ('cmake --preset cuda' builds it, where nvcc is)";
}

Result<std::unique_ptr<Backend>> make_cuda_backend(const BackendOptions&) {
  return not_built("cuda", why_no_cuda());
}

}  // namespace nibble::kernels
