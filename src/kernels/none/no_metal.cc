#include "kernels/none/not_built.h"
#include "kernels/optional_backends.h"

namespace nibble::kernels {

std::string why_no_metal() {
  return "nibble has no Metal kernels yet";
}

Result<std::unique_ptr<Backend>> make_metal_backend(const BackendOptions&) {
  return not_built("metal", why_no_metal());
}

}  // namespace nibble::kernels
