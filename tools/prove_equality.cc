// The promise, measured: one fixed run of a real model gives one digest over every backend and instruction set of
// this machine, thread count, route of the GPU's NVFP4 layers, prefill chunk, with a cold or a warm cache, alone or
// among other sequences. Exit status 1 and the runs that differ otherwise.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/build_info.h"
#include "base/machine.h"
#include "engine/generate.h"
#include "engine/loaded_model.h"
#include "engine/logits_digest.h"
#include "kernels/cpu/detect.h"
#include "model/transformer.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::string model;
  std::string prompt_file;
  int prompt_tokens = 300;
  int max_tokens = 64;
  std::vector<std::string> backends = {"cpu"};
  std::vector<std::string> isas;
  std::vector<int> threads = {1, 2, 3};
  std::vector<int> chunks = {1, 7, 64, 0};  // 0: the whole prompt at once
  std::vector<int> cpu_chunks = {};         // of cpu, if others than those
  std::vector<int> batches = {};            // sequences that are decoded in one step
  std::vector<std::string> routes = {"auto"};
  std::string output;
};

struct Cell {
  std::string backend;
  std::string isa = {};  // of cpu
  int threads = 0;
  bool graphs = false;     // of cuda
  std::string route = {};  // of cuda
  int chunk = 0;
  int batch = 1;
  bool warm = false;
  std::string digest = {};
  std::vector<std::int32_t> tokens = {};
  double seconds = 0;
};

class Prover {
 public:
  explicit Prover(const Flags& flags) : flags_(flags) {}

  Result<bool> run() {
    for (const std::string& backend : flags_.backends) NIBBLE_TRY(run_backend(backend));
    bool equal = !cells_.empty();
    for (const Cell& cell : cells_)
      equal &= cell.digest == cells_.front().digest && cell.tokens == cells_.front().tokens;
    return equal;
  }

  Json receipt(bool equal) const {
    Json cells = Json::array();
    for (const Cell& c : cells_) {
      cells.push_back({{"backend", c.backend},
                       {"isa", c.isa},
                       {"threads", c.threads},
                       {"graphs", c.graphs},
                       {"route", c.route},
                       {"chunk", c.chunk},
                       {"batch", c.batch},
                       {"cache", c.warm ? "warm" : "cold"},
                       {"logits_digest", c.digest},
                       {"seconds", c.seconds}});
    }
    return {{"what", "one fixed run, one digest"},
            {"model_sha256", model_sha256_},
            {"prompt_tokens", prompt_.size()},
            {"generated_tokens", cells_.empty() ? 0 : cells_.front().tokens.size()},
            {"equal", equal},
            {"logits_digest", cells_.empty() ? "" : cells_.front().digest},
            {"tokens", cells_.empty() ? std::vector<std::int32_t>() : cells_.front().tokens},
            {"cpu", cpu_model_name()},
            {"machines", machines_},
            {"commit", kCommit},
            {"compiler", kCompiler},
            {"runs", cells}};
  }

 private:
  // What a backend offers to choose, each choice in turn.
  Status run_backend(const std::string& backend) {
    if (backend != "cpu") {
      for (const std::string& route : flags_.routes) {
        for (const bool graphs : {true, false}) {
          NIBBLE_TRY(run_machine({.backend = backend, .graphs = graphs, .route = route}));
        }
      }
      return ok_status();
    }
    for (const std::string& isa : flags_.isas) {
      for (const int threads : flags_.threads) {
        NIBBLE_TRY(run_machine({.backend = backend, .isa = isa, .threads = threads}));
      }
    }
    return ok_status();
  }

  Status run_machine(Cell machine) {
    NIBBLE_ASSIGN(
        const auto loaded,
        engine::load(flags_.model, {.backend = machine.backend,
                                    .machine = {.isa = machine.isa.empty() ? "auto" : machine.isa,
                                                .n_threads = machine.threads,
                                                .cuda_graphs = machine.graphs,
                                                .cuda_route = machine.route.empty() ? "auto" : machine.route}}));
    const std::string description = loaded->model->backend->description();
    if (std::ranges::find(machines_, description) == machines_.end()) machines_.push_back(description);
    if (prompt_.empty()) {
      NIBBLE_TRY(read_prompt(*loaded));
      NIBBLE_ASSIGN(model_sha256_, engine::model_sha256(loaded->file()));
    }
    const bool has_own = machine.backend == "cpu" && !flags_.cpu_chunks.empty();
    for (const int chunk : has_own ? flags_.cpu_chunks : flags_.chunks) {
      const int rows = chunk > 0 ? chunk : static_cast<int>(prompt_.size());
      NIBBLE_ASSIGN(
          const auto session,
          engine::Session::create(*loaded->model, {.n_ctx = static_cast<int>(prompt_.size()) + flags_.max_tokens + 1,
                                                   .prefill_chunk = rows}));
      machine.chunk = chunk;
      machine.warm = false;
      NIBBLE_TRY(run_cell(*loaded, *session, machine));
      // A warm cache: the first two thirds of the prompt are there from another request.
      std::vector<std::int32_t> other(prompt_.begin(),
                                      prompt_.begin() + static_cast<std::ptrdiff_t>(prompt_.size() * 2 / 3));
      other.push_back(other.front());
      NIBBLE_TRY(session->prefill(other));
      machine.warm = true;
      NIBBLE_TRY(run_cell(*loaded, *session, machine));
    }
    machine.chunk = 0;
    machine.warm = false;
    for (const int batch : flags_.batches) {
      if (has_own) break;  // too slow for these as well
      machine.batch = batch;
      NIBBLE_TRY(run_batch(*loaded->model, machine));
    }
    return ok_status();
  }

  // The same run as several sequences at once, each a token behind the one before it, so that steps have one row up to
  // `batch` and sequences of different lengths. The tokens are those of the first cell; every sequence is a cell.
  Status run_batch(model::Model& model, Cell cell) {
    const int n_prompt = static_cast<int>(prompt_.size());
    std::vector<std::int32_t> all = prompt_;
    all.insert(all.end(), cells_.front().tokens.begin(), cells_.front().tokens.end() - 1);
    const int n_all = static_cast<int>(all.size()), vocab = model.config.vocab_size;
    model::Transformer transformer(model.config, model.weights, *model.backend, std::max(n_prompt, cell.batch), n_all);
    std::vector<std::unique_ptr<kernels::KvCache>> caches;
    std::vector<engine::LogitsDigest> digests(static_cast<std::size_t>(cell.batch));
    for (int i = 0; i < cell.batch; ++i) {
      caches.push_back(
          model.backend->make_kv_cache({model.config.n_layers, model.config.n_kv_heads, model.config.head_dim, n_all}));
    }
    std::vector<float> logits(static_cast<std::size_t>(cell.batch) * vocab);
    std::vector<std::int32_t> tokens, wanted;
    std::vector<kernels::TokenRow> rows;
    std::vector<int> sequences;
    const auto start = std::chrono::steady_clock::now();
    const auto run_step = [&]() -> Status {
      const std::span<float> out(logits.data(), wanted.size() * vocab);
      NIBBLE_TRY(transformer.forward({.tokens = tokens, .rows = rows, .logit_rows = wanted}, out));
      for (std::size_t i = 0; i < sequences.size(); ++i) digests[sequences[i]].add(out.subspan(i * vocab, vocab));
      return ok_status();
    };
    for (int i = 0; i < cell.batch; ++i) {
      tokens = prompt_;
      rows.clear();
      for (int pos = 0; pos < n_prompt; ++pos) rows.push_back({caches[i].get(), pos});
      wanted = {n_prompt - 1};
      sequences = {i};
      NIBBLE_TRY(run_step());
    }
    for (int now = n_prompt; now < n_all + cell.batch - 1; ++now) {
      tokens.clear(), rows.clear(), wanted.clear(), sequences.clear();
      for (int i = 0; i < cell.batch; ++i) {
        const int pos = now - i;
        if (pos < n_prompt || pos >= n_all) continue;
        wanted.push_back(static_cast<std::int32_t>(tokens.size()));
        tokens.push_back(all[pos]);
        rows.push_back({caches[i].get(), pos});
        sequences.push_back(i);
      }
      NIBBLE_TRY(run_step());
    }
    cell.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    cell.tokens = cells_.front().tokens;
    for (const engine::LogitsDigest& digest : digests) {
      cell.digest = digest.whole();
      add(cell);
    }
    return ok_status();
  }

  Status run_cell(const engine::LoadedModel& loaded, engine::Session& session, Cell cell) {
    engine::GenerateRequest request;
    request.prompt = prompt_;
    request.max_tokens = flags_.max_tokens;
    request.ignore_eos = true;
    NIBBLE_ASSIGN(const engine::Completion completion, engine::generate(session, loaded.tokenizer, request));
    NIBBLE_CHECK(cell.warm == (completion.reused_positions > 0), "the cache is not in the state under test");
    cell.digest = completion.logits_digest;
    cell.tokens = completion.tokens;
    cell.seconds = completion.prefill_seconds + completion.decode_seconds;
    add(std::move(cell));
    return ok_status();
  }

  void add(Cell cell) {
    const bool same = cells_.empty() || cell.digest == cells_.front().digest;
    const std::string machine =
        cell.backend == "cpu" ? fmt::format("{} {} threads", cell.isa, cell.threads)
                              : fmt::format("{} {} graphs {}", cell.backend, cell.route, cell.graphs ? "on" : "off");
    fmt::print("{:24} chunk {:>3}  batch {:>2}  {}  {:6.1f} s  {}{}\n", machine, cell.chunk, cell.batch,
               cell.warm ? "warm" : "cold", cell.seconds, cell.digest, same ? "" : "  DIFFERENT");
    std::fflush(stdout);
    cells_.push_back(std::move(cell));
  }

  Status read_prompt(const engine::LoadedModel& loaded) {
    std::ifstream in(flags_.prompt_file, std::ios::binary);
    if (!in) return Error{.message = "cannot open the prompt file", .file = flags_.prompt_file};
    const std::string text(std::istreambuf_iterator<char>(in), {});
    NIBBLE_ASSIGN(prompt_, loaded.tokenizer.encode(text));
    if (prompt_.size() < static_cast<std::size_t>(flags_.prompt_tokens)) {
      return Error{.message = "the prompt file is too short",
                   .file = flags_.prompt_file,
                   .found = fmt::format("{} tokens", prompt_.size()),
                   .expected = fmt::format("{}", flags_.prompt_tokens)};
    }
    prompt_.resize(static_cast<std::size_t>(flags_.prompt_tokens));
    return ok_status();
  }

  const Flags& flags_;
  std::vector<std::int32_t> prompt_;
  std::string model_sha256_;
  std::vector<Cell> cells_;
  std::vector<std::string> machines_;
};

int prove(Flags& flags) {
  if (flags.isas.empty()) {
    for (const std::string_view isa : kernels::cpu::isa_names()) flags.isas.emplace_back(isa);
  }
  Prover prover(flags);
  const Result<bool> equal = prover.run();
  if (!equal.ok()) {
    fmt::print(stderr, "error: {}\n", equal.error().to_string());
    return 1;
  }
  if (!flags.output.empty()) std::ofstream(flags.output) << prover.receipt(*equal).dump(1) << "\n";
  fmt::print("{}\n", *equal ? "one digest" : "DIGESTS DIFFER");
  return *equal ? 0 : 1;
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  nibble::Flags flags;
  CLI::App app{"One fixed run of a model gives one digest over ISA x threads x prefill chunk x cache state"};
  app.add_option("MODEL", flags.model, "An NVFP4 .gguf file")->required();
  app.add_option("-f,--file", flags.prompt_file, "Text whose first tokens are the prompt")->required();
  app.add_option("--prompt-tokens", flags.prompt_tokens)->capture_default_str();
  app.add_option("-n", flags.max_tokens, "Tokens to generate")->capture_default_str();
  app.add_option("--backend", flags.backends, "cpu, cuda, or both")->delimiter(',')->capture_default_str();
  app.add_option("--isa", flags.isas, "Default: all of this machine")->delimiter(',');
  app.add_option("--threads", flags.threads)->delimiter(',')->capture_default_str();
  app.add_option("--chunk", flags.chunks, "Prefill chunks; 0: the whole prompt")->delimiter(',')->capture_default_str();
  app.add_option("--cpu-chunk", flags.cpu_chunks, "Prefill chunks of cpu, where it is slow")->delimiter(',');
  app.add_option("--batch", flags.batches, "Sequences that cuda decodes at once, besides one by one")->delimiter(',');
  app.add_option("--route", flags.routes, "Of NVFP4 layers of cuda: auto, gemv, gemm, gemm-mma, integers")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("-o,--output", flags.output, "Receipt (JSON)");
  CLI11_PARSE(app, argc, argv);
  return nibble::prove(flags);
}
