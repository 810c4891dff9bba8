// The backends that nibble knows, in the order in which "auto" tries them. One that is not in this binary is a linked
// stub that says why (src/kernels/none/), so that asking for it is an answer and not a silent fall-back.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/backend.h"

namespace nibble::kernels {

struct BackendOptions {
  std::string isa = "auto";  // of the cpu backend, the only one that has any
  int n_threads = 0;         // 0: one per hardware thread
  bool pins_threads = true;  // of the cpu backend: where each thread can have a place of its own
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

// "auto" is the first usable one of the list, or cpu where an instruction set is named. An instruction set that cannot
// be used is an error whatever the backend, NIBBLE_ISA's as well.
Result<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options);

struct BackendEntry {
  std::string_view name;
  Result<std::unique_ptr<Backend>> (*make)(const BackendOptions&);
  std::string (*unusable_because)();
};
std::span<const BackendEntry> backend_entries();

// What a model wants of a backend.
struct BackendNeeds {
  ActivationFormat activations = ActivationFormat::kA11;
  std::vector<WeightShape> weights = {};
  std::vector<Ability> abilities = {};
};
// Refuses weights that the backend's memory does not hold, in its own layout of them.
Status admit_weights(Backend& backend, const BackendNeeds& needs);
struct ChosenBackend {
  std::unique_ptr<Backend> backend;
  std::string passed_over;  // for people: the usable ones before it, and what each lacks; often empty
};
// What "auto" is for a model: the first usable entry that can do all of it. An instruction set that cannot be used is
// an error and never a reason to pass over the cpu backend.
Result<ChosenBackend> choose_backend(std::span<const BackendEntry> entries, const BackendOptions& options,
                                     const BackendNeeds& needs);

}  // namespace nibble::kernels
