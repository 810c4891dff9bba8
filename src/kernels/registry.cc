#include "kernels/registry.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/detect.h"
#include "kernels/optional_backends.h"
#include "kernels/reference/reference_backend.h"

namespace nibble::kernels {
namespace {

Result<std::unique_ptr<Backend>> make_cpu(const BackendOptions& options) {
  return make_cpu_backend({.isa = options.isa, .n_threads = options.n_threads, .pins_threads = options.pins_threads});
}
Result<std::unique_ptr<Backend>> make_reference(const BackendOptions& options) {
  return make_reference_backend({.n_threads = options.n_threads > 0 ? options.n_threads : 1});
}
std::string usable() {
  return "";
}

constexpr BackendEntry kBackends[] = {
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

// An instruction set is asked for by name, in the options or in NIBBLE_ISA: a wrong one is the user's error and no
// reason to take another backend.
Status check_isa(const BackendOptions& options) {
  const auto table = cpu::select_isa(options.isa);
  return table.ok() ? ok_status() : Status(table.error());
}

// What the backend lacks, as the end of a sentence that begins with its name; empty: nothing.
std::string lack_of(Backend& backend, const BackendNeeds& needs) {
  for (const WeightShape& weights : needs.weights) {
    if (!backend.takes(weights.dtype)) {
      return fmt::format("has no kernels for weights in {}", dtype_name(weights.dtype));
    }
  }
  for (const Ability ability : needs.abilities) {
    if (!backend.has(ability)) return fmt::format("does not have {}", ability_name(ability));
  }
  if (!backend.use_activations(needs.activations).ok()) {
    return fmt::format("has no kernels for activations in {}", activation_format_name(needs.activations));
  }
  const Status admitted = admit_weights(backend, needs);
  return admitted.ok() ? "" : fmt::format("has too little memory ({})", admitted.error().found);
}

}  // namespace

std::span<const BackendEntry> backend_entries() {
  return kBackends;
}

Status admit_weights(Backend& backend, const BackendNeeds& needs) {
  MemoryNeed need;
  for (const WeightShape& weights : needs.weights) need.weights += backend.weight_bytes(weights);
  return backend.admit(need);
}

Result<ChosenBackend> choose_backend(std::span<const BackendEntry> entries, const BackendOptions& options,
                                     const BackendNeeds& needs) {
  NIBBLE_TRY(check_isa(options));
  ChosenBackend chosen;
  Error last{.message = "no backend can be used here"};
  for (const BackendEntry& entry : entries) {
    if (!entry.unusable_because().empty()) continue;
    auto made = entry.make(options);
    std::string lack;
    if (made.ok()) {
      lack = lack_of(**made, needs);
      if (lack.empty()) {
        chosen.backend = std::move(*made);
        return chosen;
      }
      last = Error{.message = "no backend here can run this model"};
    } else {
      lack = "cannot be used: " + made.error().message;
      last = std::move(made).error();
    }
    chosen.passed_over += fmt::format("{}{} {}", chosen.passed_over.empty() ? "" : "; ", entry.name, lack);
  }
  if (last.found.empty()) last.found = chosen.passed_over;
  return last;
}

std::vector<BackendState> backend_states() {
  std::vector<BackendState> states;
  for (const BackendEntry& entry : kBackends) states.push_back({entry.name, entry.unusable_because()});
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
  for (const BackendEntry& entry : kBackends) {
    const bool is_usable = entry.unusable_because().empty();
    if (entry.name == name || ((name == "auto" || name.empty()) && is_usable)) {
      if (names_isa && entry.name != "cpu") return no_instruction_sets(entry.name, options.isa);
      NIBBLE_TRY(check_isa(options));
      return entry.make(options);
    }
    if (is_usable) names += ", " + std::string(entry.name);
  }
  return Error{.message = "unknown backend '" + std::string(name) + "'",
               .found = std::string(name),
               .expected = "one of: " + names};
}

}  // namespace nibble::kernels
