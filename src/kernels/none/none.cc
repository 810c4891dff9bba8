#include "kernels/none/none.h"

namespace nibble::kernels {
namespace {

Error not_built(const std::string& name, const std::string& reason) {
  return Error{.message = "the " + name + " backend is not built into this binary: " + reason,
               .found = name,
               .expected = "cpu",
               .hint = "--backend cpu gives the same answer"};
}

}  // namespace

std::string why_no_cuda() {
  return "nibble has no CUDA kernels yet";
}
std::string why_no_metal() {
  return "nibble has no Metal kernels yet";
}
Result<std::unique_ptr<Backend>> make_cuda_stub(const BackendOptions&) {
  return not_built("cuda", why_no_cuda());
}
Result<std::unique_ptr<Backend>> make_metal_stub(const BackendOptions&) {
  return not_built("metal", why_no_metal());
}

}  // namespace nibble::kernels
