// nibble ppl: perplexity of texts.
#include <fmt/format.h>

#include <memory>

#include "apps/commands.h"
#include "apps/console.h"
#include "apps/quality_flags.h"

namespace nibble::apps {
namespace {

using measure::Json;

struct PplFlags {
  ModelFlags model;
  QualityFlags quality;
};

void print_row(const std::string& name, const Json& row) {
  const double nll = row["nll"].get<double>(), error = row["nll_error"].get<double>();
  write_out(fmt::format("{:16} perplexity {:10.4f}  ({:.5f} +- {:.5f} nats a token, {} tokens)\n", name,
                        row["perplexity"].get<double>(), nll, error, row["scored"].get<std::size_t>()));
}

Result<int> ppl(const PplFlags& flags) {
  NIBBLE_TRY(flags.quality.check_output({flags.model.model}));
  NIBBLE_ASSIGN(const auto texts, measure::read_classes(flags.quality.texts));
  NIBBLE_ASSIGN(measure::OpenSubject subject, measure::open_subject(flags.model.subject()));
  NIBBLE_ASSIGN(Json receipt, measure::measure_perplexity(subject, texts, flags.quality.options, token_progress()));
  if (!flags.quality.json) {
    for (const auto& [name, row] : receipt["classes"].items()) print_row(name, row);
    if (texts.size() > 1) print_row("all", receipt["all"]);
  }
  std::vector<measure::Gate> gates;
  if (flags.quality.max_perplexity) gates.push_back({"perplexity", *flags.quality.max_perplexity, false});
  return flags.quality.finish(receipt, gates);
}

}  // namespace

Command add_ppl(CLI::App& app) {
  CLI::App* command = app.add_subcommand("ppl", "Perplexity of texts, in windows");
  auto flags = std::make_shared<PplFlags>();
  flags->model.add_model(*command);
  flags->model.add_machine(*command);
  flags->model.add_contract(*command, true);
  flags->quality.add(*command);
  return [flags] { return ppl(*flags); };
}

}  // namespace nibble::apps
