#include "apps/model_flags.h"

#include <string_view>
#include <utility>
#include <vector>

#include "apps/usage.h"
#include "kernels/registry.h"

namespace nibble::apps {

void ModelFlags::add_model(CLI::App& command) {
  command.add_option("MODEL", model, "A .gguf file; of a split model the first part")->required();
}

void ModelFlags::add_machine(CLI::App& command) {
  std::vector<std::string> backends = {"auto"};
  for (const kernels::BackendState& known : kernels::backend_states()) backends.emplace_back(known.name);
  std::vector<std::string> isas = {"auto"};
  for (const std::string_view known : kernels::isa_names()) isas.emplace_back(known);
  add_choice(command, "--backend", backend, std::move(backends),
             "auto, cpu or reference (the contract as plain loops, slow)");
  add_choice(command, "--isa", isa, std::move(isas),
             "Instruction set of the cpu backend: auto, scalar, avx2, avx512 or neon");
  add_threads(command, n_threads);
}

void ModelFlags::add_session(CLI::App& command) {
  add_choice(command, "--contract", contract, {"nc1", "nk1", "nc1-f16"},
             "Arithmetic to run in, instead of the one the file declares: nc1 or nk1");
  add_choice(command, "--lane", lane, {"nvfp4", "kquant"},
             "Refuse a file whose weights are of another lane; without it the file decides");
  add_cache(command, "Positions of the cache; 0: the model's context, at most 8192");
}

void ModelFlags::add_cache(CLI::App& command, const std::string& about_ctx) {
  add_number(command, "--ctx", n_ctx, about_ctx, 0);
  add_number(command, "--chunk", prefill_chunk, "Tokens of a prefill step; changes speed and memory, never an answer",
             1);
}

void add_threads(CLI::App& command, int& n_threads) {
  add_number(command, "--threads", n_threads, "Threads; 0: one per core this process may use", 0, 1024);
}

engine::LoadOptions ModelFlags::load_options() const {
  return {.backend = backend, .machine = {.isa = isa, .n_threads = n_threads}, .contract = contract, .lane = lane};
}

}  // namespace nibble::apps
