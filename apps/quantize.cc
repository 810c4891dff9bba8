// nibble quantize: a GGUF model in floats or k-quants, rewritten as NVFP4.
#include <fmt/format.h>

#include <csignal>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/console.h"
#include "apps/interrupt.h"
#include "apps/model_flags.h"
#include "apps/usage.h"
#include "base/machine.h"
#include "quantize/quantize_model.h"

namespace nibble::apps {
namespace {

constexpr std::pair<std::string_view, HeadFormat> kHeads[] = {
    {"f16", HeadFormat::kF16}, {"keep", HeadFormat::kKeep},   {"q8_0", HeadFormat::kQ8_0},
    {"fp8", HeadFormat::kFp8}, {"nvfp4", HeadFormat::kNvfp4},
};

struct QuantizeFlags {
  std::string source;
  std::string destination;
  std::string recipe = "mse";
  std::string head = "f16";
  std::string attention = "nvfp4";
  int n_threads = 0;
};

void print_summary(const QuantizeSummary& summary, const std::string& destination) {
  say("\n{:14} {:12} {:>8} {:>12} {:>12} {:>8}\n", "kind", "stored as", "tensors", "weights", "rel. RMS", "SNR");
  for (const KindSummary& kind : summary.by_kind()) {
    const bool exact = kind.error.noise == 0;
    say("{:14} {:12} {:>8} {:>12} {:>12} {:>8}\n", kind.kind, dtype_name(kind.to), kind.n_tensors, kind.n_weights,
        exact ? "exact" : fmt::format("{:.3f}%", 100 * kind.error.relative_rms()),
        exact ? "" : fmt::format("{:.1f} dB", kind.error.snr_db()));
  }
  say("worst tensors: ");
  for (const TensorSummary& tensor : summary.worst(3)) {
    say("{} ({:.3f}%)  ", tensor.name, 100 * tensor.error.relative_rms());
  }
  say("\n");
  for (const TensorSummary& tensor : summary.tensors) {
    if (!tensor.note.empty()) say("note: {}: {}\n", tensor.name, tensor.note);
  }
  say("{} -> {}: {}\n", human_bytes(summary.source_bytes), human_bytes(summary.output_bytes), destination);
}

Result<int> quantize(const QuantizeFlags& flags) {
  ThreadPool pool(flags.n_threads > 0 ? flags.n_threads : hardware_threads());
  std::unique_ptr<Progress> bar;
  std::string phase;
  QuantizeOptions options{.recipe = *find_recipe(flags.recipe)};
  for (const auto& [name, format] : kHeads) {
    if (name == flags.head) options.head = format;
  }
  if (flags.attention == "fp8") options.attention = AttentionFormat::kFp8;
  options.progress = [&](const QuantizeProgress& progress) {
    if (phase != progress.phase) {
      phase = progress.phase;
      bar.reset();
      bar = std::make_unique<Progress>(phase, progress.total);
    }
    bar->update(progress.done);
    return !interrupted();
  };
  // Ctrl-C and its like leave through the error path, which removes the unfinished file.
  catch_interrupts({SIGINT, SIGTERM, SIGHUP}, SA_RESTART);
  const auto summary = quantize_model(flags.source, flags.destination, options, pool);
  bar.reset();
  if (!summary.ok() && interrupted()) return fail(summary.error()), status_of_signal();
  if (!summary.ok()) return summary.error();
  print_summary(*summary, flags.destination);
  return 0;
}

}  // namespace

Command add_quantize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("quantize", "A GGUF model in floats or k-quants, rewritten as NVFP4");
  auto flags = std::make_shared<QuantizeFlags>();
  add_path(*command, "SRC", flags->source, "A .gguf file; of a split model the first part")->required();
  add_path(*command, "-o,--output", flags->destination, "The NVFP4 file to write; appears only when it is whole")
      ->required();
  add_choice(*command, "--recipe", flags->recipe, {"max", "4over6", "mse"},
             "How block scales are chosen. mse: the scale with the smallest squared error; 4over6: the better of two "
             "scales; max: the rules of ModelOpt's export, bit for bit");
  std::vector<std::string> heads;
  for (const auto& [name, format] : kHeads) heads.emplace_back(name);
  add_choice(*command, "--head", flags->head, std::move(heads),
             "The output head: f16 (bf16 if the source is), q8_0, fp8 (a scale a row) or nvfp4, beside an embedding of "
             "16 bits; "
             "keep: head and embedding as the source has them, byte for byte");
  add_choice(*command, "--attention", flags->attention, {"nvfp4", "fp8"},
             "The matrices of attention. fp8: 8 bits and a scale a row, as in published mixed checkpoints");
  add_threads(*command, flags->n_threads);
  return [flags] { return quantize(*flags); };
}

}  // namespace nibble::apps
