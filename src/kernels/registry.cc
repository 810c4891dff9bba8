#include "kernels/registry.h"

#include <span>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/detect.h"
#include "kernels/optional_backends.h"
#include "kernels/reference/reference_backend.h"

namespace nibble::kernels {
namespace {

struct Entry {
  std::string_view name;
  Result<std::unique_ptr<Backend>> (*make)(const BackendOptions&);
  std::string (*unusable_because)();
};

Result<std::unique_ptr<Backend>> make_cpu(const BackendOptions& options) {
  return make_cpu_backend({.isa = options.isa, .n_threads = options.n_threads});
}
Result<std::unique_ptr<Backend>> make_reference(const BackendOptions& options) {
  return make_reference_backend({.n_threads = options.n_threads > 0 ? options.n_threads : 1});
}
std::string usable() {
  return "";
}

constexpr Entry kBackends[] = {
    {"cuda", make_cuda_backend, why_no_cuda},
    {"metal", make_metal_backend, why_no_metal},
    {"cpu", make_cpu, usable},
    {"reference", make_reference, usable},
};

Error no_instruction_sets(std::string_view backend, const std::string& isa) {
  return {.message = "backend '" + std::string(backend) + "' has no instruction sets to choose",
          .found = isa,
          .expected = "an instruction set with the backend cpu, or none"};
}

}  // namespace

std::vector<BackendState> backend_states() {
  std::vector<BackendState> states;
  for (const Entry& entry : kBackends) states.push_back({entry.name, entry.unusable_because()});
  return states;
}

std::vector<std::string_view> isa_names() {
  std::vector<std::string_view> names;
  for (const cpu::IsaState& isa : cpu::isa_states()) names.push_back(isa.name);
  return names;
}

Result<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options) {
  const bool names_isa = options.isa != "auto" && !options.isa.empty();
  if (names_isa && (name == "auto" || name.empty())) name = "cpu";  // no other has instruction sets
  std::string names = "auto";
  for (const Entry& entry : kBackends) {
    const bool is_usable = entry.unusable_because().empty();
    if (entry.name == name || ((name == "auto" || name.empty()) && is_usable)) {
      if (names_isa && entry.name != "cpu") return no_instruction_sets(entry.name, options.isa);
      return entry.make(options);
    }
    if (is_usable) names += ", " + std::string(entry.name);
  }
  return Error{.message = "unknown backend '" + std::string(name) + "'",
               .found = std::string(name),
               .expected = "one of: " + names};
}

}  // namespace nibble::kernels
