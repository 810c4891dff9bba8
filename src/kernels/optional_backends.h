// Backends that a build may lack. CMake links either the backend or, from src/kernels/none/, a stub that says why it is
// not there: asking for it is then an answer and not a silent fall-back.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "kernels/registry.h"

namespace nibble::kernels {

// Empty where the backend can be used on this machine, otherwise the reason in one sentence.
std::string why_no_cuda();
std::string why_no_metal();

Result<std::unique_ptr<Backend>> make_cuda_backend(const BackendOptions& options);
Result<std::unique_ptr<Backend>> make_metal_backend(const BackendOptions& options);

}  // namespace nibble::kernels
