#include "apps/model_flags.h"

namespace nibble::apps {

void ModelFlags::add_model(CLI::App& command) {
  command.add_option("MODEL", model, "A .gguf file; of a split model the first part")->required();
}

void ModelFlags::add_machine(CLI::App& command) {
  command.add_option("--backend", backend, "auto, cpu or reference (the contract as plain loops, slow)")
      ->capture_default_str();
  command.add_option("--isa", isa, "Instruction set of the cpu backend: auto, scalar, avx2, avx512 or neon")
      ->capture_default_str();
  command.add_option("--threads", n_threads, "Threads; 0: one per core this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

void ModelFlags::add_session(CLI::App& command) {
  command.add_option("--contract", contract, "Arithmetic to run in, instead of the one the file declares: nc1 or nk1");
  command.add_option("--lane", lane, "Refuse a file whose weights are of another lane; without it the file decides")
      ->check(CLI::IsMember({"nvfp4", "kquant"}));
  command.add_option("--ctx", n_ctx, "Positions of the cache; 0: the model's context, at most 8192")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--chunk", prefill_chunk, "Tokens of a prefill step; changes speed and memory, never an answer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

engine::LoadOptions ModelFlags::load_options() const {
  return {.backend = backend, .machine = {.isa = isa, .n_threads = n_threads}, .contract = contract, .lane = lane};
}

}  // namespace nibble::apps
