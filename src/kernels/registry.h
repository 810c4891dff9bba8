// The backends that nibble knows, in the order in which "auto" tries them. One that is not in this binary is a linked
// stub that says why (src/kernels/none/), so that asking for it is an answer and not a silent fall-back.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/backend.h"

namespace nibble::kernels {

struct BackendOptions {
  std::string isa = "auto";  // of the cpu backend, the only one that has any
  int n_threads = 0;         // 0: one per hardware thread
  bool cuda_graphs = true;   // of the cuda backend: replay steps that come again
  // Of the cuda backend, for NVFP4 layers: "gemv", "gemm", "gemm-mma" or "integers" forces a kernel, for tests and
  // measurements. The bits are the same.
  std::string cuda_route = "auto";
};

struct BackendState {
  std::string_view name;
  std::string unusable_because;  // empty: usable
};
std::vector<BackendState> backend_states();

// Values of BackendOptions::isa besides "auto": every instruction set that nibble knows, usable here or not.
std::vector<std::string_view> isa_names();

// "auto" is the first usable one of the list, or cpu where an instruction set is named.
Result<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options);

}  // namespace nibble::kernels
