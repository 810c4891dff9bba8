// Backends that this binary does not have.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "kernels/registry.h"

namespace nibble::kernels {

std::string why_no_cuda();
std::string why_no_metal();
Result<std::unique_ptr<Backend>> make_cuda_stub(const BackendOptions&);
Result<std::unique_ptr<Backend>> make_metal_stub(const BackendOptions&);

}  // namespace nibble::kernels
