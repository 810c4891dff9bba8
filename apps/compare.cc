// nibble compare: how far one model, contract or backend is from another on the same texts.
#include <fmt/format.h>

#include <memory>

#include "apps/commands.h"
#include "apps/console.h"
#include "apps/quality_flags.h"
#include "apps/usage.h"

namespace nibble::apps {
namespace {

using measure::Json;

struct CompareFlags {
  std::string models[2];
  std::string settings[2];
  QualityFlags quality;
};

void print_row(const std::string& name, const Json& row) {
  write_out(fmt::format("{:14}{:>9}{:>11.3f}{:>11.3f}{:>12.6f}{:>10.4f}{:>10.3f}{:>9.2f}%{:>11.4f}{:>10.3f}\n", name,
                        row["positions"].get<std::size_t>(), row["a_perplexity"].get<double>(),
                        row["b_perplexity"].get<double>(), row["mean_kl"].get<double>(), row["p99_kl"].get<double>(),
                        row["max_kl"].get<double>(), 100 * row["top1_agreement"].get<double>(),
                        row["mean_drift"].get<double>(), row["max_drift"].get<double>()));
}

void print(const Json& receipt) {
  for (const char* side : {"a", "b"}) {
    const Json& s = receipt[side];
    write_out(fmt::format("{}: {}, {}, {}\n", side, s["file"].get<std::string>(), s["contract"].get<std::string>(),
                          s["backend"].get<std::string>()));
  }
  write_out(fmt::format("{:14}{:>9}{:>11}{:>11}{:>12}{:>10}{:>10}{:>10}{:>11}{:>10}\n", "", "positions", "ppl a",
                        "ppl b", "mean KL", "99% KL", "max KL", "top 1", "mean drift", "max drift"));
  for (const auto& [name, row] : receipt["classes"].items()) print_row(name, row);
  if (receipt["classes"].size() > 1) print_row("all", receipt["all"]);
  for (const auto& [name, row] : receipt["bands"].items()) print_row("at " + name, row);
}

Result<int> compare(const CompareFlags& flags) {
  NIBBLE_TRY(flags.quality.check_output({flags.models[0], flags.models[1]}));
  NIBBLE_ASSIGN(const auto texts, measure::read_classes(flags.quality.texts));
  measure::OpenSubject sides[2];
  for (int i = 0; i < 2; ++i) {
    NIBBLE_ASSIGN(const auto subject,
                  measure::with_settings({.model = flags.models[i], .on_note = say_note}, flags.settings[i]));
    NIBBLE_ASSIGN(sides[i], measure::open_subject(subject));
  }
  NIBBLE_ASSIGN(Json receipt,
                measure::compare_quality(sides[0], sides[1], texts, flags.quality.options, token_progress()));
  if (!flags.quality.json) print(receipt);
  std::vector<measure::Gate> gates;
  if (flags.quality.max_kl) gates.push_back({"mean_kl", *flags.quality.max_kl, false});
  if (flags.quality.min_top1) gates.push_back({"top1_agreement", *flags.quality.min_top1, true});
  if (flags.quality.max_perplexity) gates.push_back({"b_perplexity", *flags.quality.max_perplexity, false});
  return flags.quality.finish(receipt, gates);
}

}  // namespace

Command add_compare(CLI::App& app) {
  CLI::App* command = app.add_subcommand("compare", "KL, agreement and perplexity of two forms of a model on texts");
  auto flags = std::make_shared<CompareFlags>();
  add_path(*command, "A", flags->models[0], "The reference: a .gguf file")->required();
  add_path(*command, "B", flags->models[1], "What is held against it: a .gguf file of the same model")->required();
  const std::string keys = ": KEY=VALUE,... of contract (float: float arithmetic), backend, isa, threads, pin, chunk";
  add_settings(*command, "--a", flags->settings[0], "How A runs" + keys);
  add_settings(*command, "--b", flags->settings[1], "How B runs" + keys);
  flags->quality.add(*command);
  add_number(*command, "--max-kl", flags->quality.max_kl, "Gate: mean KL of every class at most this, in nats", 0.0);
  add_number(*command, "--min-top1", flags->quality.min_top1, "Gate: share of the same first choice at least this", 0.0,
             1.0);
  return [flags, command]() -> Result<int> {
    for (int i = 0; i < 2; ++i) {
      NIBBLE_ASSIGN(const auto subject, measure::with_settings({}, flags->settings[i]));
      if (subject.model.empty()) continue;
      const char side = i == 0 ? 'a' : 'b';
      return wrong_usage(*command, {.message = fmt::format("--{}: a model cannot be set", side),
                                    .found = "model=" + subject.model,
                                    .expected = "its path as an argument"});
    }
    return compare(*flags);
  };
}

}  // namespace nibble::apps
