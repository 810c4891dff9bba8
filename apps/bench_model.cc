// nibble bench decode, prefill and load: a whole model, alone or beside a peer.
#include <fmt/format.h>

#include <memory>

#include "apps/bench_commands.h"
#include "apps/console.h"
#include "apps/model_flags.h"
#include "apps/output_path.h"
#include "apps/usage.h"
#include "base/machine.h"
#include "measure/model_bench.h"

namespace nibble::apps {
namespace {

using measure::Json;
using measure::Work;

struct BenchFlags {
  ModelFlags model;
  std::string text;
  int prefix = 128;
  int n_tokens = 64;
  measure::BenchOptions options;
  std::string vs;
  std::string vs_command;
  std::string against;
  measure::LlamaOptions llama;
  bool one = false;
  bool json = false;
  std::string output;
};

// The other side, or null.
Result<std::unique_ptr<measure::Contender>> make_peer(const BenchFlags& flags, const measure::Task& task) {
  if (!flags.vs_command.empty()) return measure::make_command_contender(flags.vs_command, task);
  if (!flags.against.empty()) {
    measure::LlamaOptions llama = flags.llama;
    llama.n_threads = flags.model.n_threads > 0 ? flags.model.n_threads : hardware_threads();
    return measure::make_llama_contender(llama, task);
  }
  if (flags.vs.empty()) return std::unique_ptr<measure::Contender>();
  NIBBLE_ASSIGN(const measure::Subject other, measure::with_settings(flags.model.subject(), flags.vs));
  return measure::make_nibble_contender(other, task);
}

void print(const Json& json) {
  for (const Json& cell : json["cells"]) {
    const std::string rate =
        cell.contains("tokens_per_s") ? fmt::format("{:9.2f} tok/s", cell["tokens_per_s"].get<double>()) : "";
    std::string who = cell.value("file", cell.value("command", ""));
    for (const char* key : {"backend", "description"}) {
      if (cell.contains(key)) who += ", " + cell[key].get<std::string>();
    }
    say("{}  {}  {:9.4f} s, cv {:4.1f} %  {}\n", cell["label"].get<std::string>(), rate, cell["median_s"].get<double>(),
        100 * cell["cv"].get<double>(), who);
  }
  if (!json.contains("speed_of_a")) return;
  const Json& speed = json["speed_of_a"];
  say("A runs at {:.3f} of B's speed, 95 % interval {:.3f} to {:.3f}{}\n", speed["ratio"].get<double>(),
      speed["low"].get<double>(), speed["high"].get<double>(),
      speed["excludes_one"] ? "" : ": no difference can be told");
  if (json["cells"][1].value("work", "") == "not told") {
    say("work: not compared, for B tells no \"timed_tokens\"\n");
  }
  say("logits after the last token: {}\n", json["same_logits"].is_null() ? "not compared"
                                           : json["same_logits"]         ? "the same, bit for bit"
                                                                         : "not the same bits");
}

Result<int> bench(const BenchFlags& flags, Work work) {
  NIBBLE_TRY(check_output(
      flags.output, {flags.model.model, flags.text, flags.llama.model, flags.llama.llama_bench, flags.llama.python}));
  NIBBLE_ASSIGN(const measure::Task task,
                measure::make_task(work, flags.model.model, flags.text, flags.prefix, flags.n_tokens));
  NIBBLE_ASSIGN(const auto a, measure::make_nibble_contender(flags.model.subject(), task));
  if (flags.one) {
    for (int i = 0; i < flags.options.warmups; ++i) NIBBLE_TRY(a->run());
    NIBBLE_ASSIGN(const measure::Sample sample, a->run());
    Json line = {{"seconds", sample.seconds}, {"digest", sample.digest}};
    line.update(measure::task_facts(task));
    write_out(line.dump() + "\n");
    return 0;
  }
  NIBBLE_ASSIGN(const auto b, make_peer(flags, task));
  NIBBLE_ASSIGN(const Json json, measure::bench_model(task, *a, b.get(), flags.options));
  if (!flags.output.empty()) NIBBLE_TRY(measure::write_json(json, flags.output));
  if (flags.json) write_out(json.dump(1) + "\n");
  print(json);
  return 0;
}

void add_peers(CLI::App& command, BenchFlags& flags, Work work) {
  CLI::Option* vs = add_settings(command, "--vs", flags.vs,
                                 "The same with other settings, of model backend isa threads contract chunk");
  CLI::Option* other =
      add_path(command, "--vs-command", flags.vs_command,
               "A command run once a sample: its last line {\"seconds\": ...} counts, else its time from start to end");
  other->excludes(vs);
  if (work == Work::kLoad) return;
  CLI::Option* against =
      add_choice(command, "--against", flags.against, {"llama.cpp"}, "llama.cpp, on a GGUF of the same model")
          ->excludes(vs)
          ->excludes(other);
  CLI::Option* model = add_path(command, "--against-model", flags.llama.model, "That GGUF")->needs(against);
  against->needs(model);
  add_path(command, "--python", flags.llama.python, "A Python with llama-cpp-python")
      ->needs(against)
      ->capture_default_str();
  add_path(command, "--llama-bench", flags.llama.llama_bench, "This llama-bench binary instead of Python")
      ->needs(against);
}

Command add_work(CLI::App& bench_command, Work work, const char* about) {
  CLI::App* command = bench_command.add_subcommand(std::string(measure::work_name(work)), about);
  auto flags = std::make_shared<BenchFlags>();
  flags->model.add_model(*command);
  flags->model.add_machine(*command);
  flags->model.add_contract(*command, work != Work::kLoad);
  add_number(*command, "--chunk", flags->model.prefill_chunk, "Tokens of a prefill step", 1);
  if (work != Work::kLoad) {
    flags->n_tokens = work == Work::kDecode ? 64 : 512;
    add_number(*command, "-n,--n-tokens", flags->n_tokens, "Tokens that are timed", 1);
    add_path(*command, "-f,--file", flags->text, "Text to take them from (default: seeded ids)");
  }
  if (work == Work::kDecode) {
    add_number(*command, "--prefix", flags->prefix, "Tokens in the cache before the clock starts", 1);
  }
  add_peers(*command, *flags, work);
  command->callback([flags] {  // B has the settings of A but those that --vs names
    const auto other = measure::with_settings(flags->model.subject(), flags->vs);
    Status status = other.ok() ? measure::check_combination(*other) : Status(other.error());
    if (status.ok()) return;
    Error error = std::move(status).error();
    error.message = "--vs: " + error.message;
    throw BadUsage(std::move(error));
  });
  add_number(*command, "--repetitions", flags->options.repetitions, "Samples that count, of each side",
             static_cast<int>(measure::kMinPairs), 10000);
  add_number(*command, "--warmups", flags->options.warmups, "Samples before them", 1, 100);
  command->add_flag("--one", flags->one, "One sample as a line of JSON on stdout, for --vs-command of another build");
  command->add_flag("--json", flags->json, "The receipt on stdout");
  add_path(*command, "-o,--output", flags->output, "The receipt (JSON) into a file");
  return [flags, work] { return bench(*flags, work); };
}

}  // namespace

Command add_bench_decode(CLI::App& bench_command) {
  return add_work(bench_command, Work::kDecode, "Tokens one after another behind a fixed prefix");
}
Command add_bench_prefill(CLI::App& bench_command) {
  return add_work(bench_command, Work::kPrefill, "A prompt into an empty cache");
}
Command add_bench_load(CLI::App& bench_command) {
  return add_work(bench_command, Work::kLoad, "From the file, in the page cache, to the first logits");
}

}  // namespace nibble::apps
