#include "apps/model_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/console.h"
#include "apps/usage.h"
#include "kernels/registry.h"

namespace nibble::apps {
namespace {

constexpr const char* kFloat = "float";
constexpr const char* kPinAuto = "auto";

bool is_one_of(const std::vector<std::string>& choices, const std::string& value) {
  return std::ranges::find(choices, value) != choices.end();
}

}  // namespace

namespace {

struct BackendNames {
  std::vector<std::string> known, usable;
  std::string absent;  // "not here: metal (why), ..."; empty: none

  explicit BackendNames(bool with_auto) {
    if (with_auto) known = usable = {"auto"};
    for (const kernels::BackendState& backend : kernels::backend_states()) {
      known.emplace_back(backend.name);
      if (backend.unusable_because.empty()) {
        usable.emplace_back(backend.name);
      } else {
        absent += fmt::format("{}{}: {}", absent.empty() ? "not here: " : "; ", backend.name, backend.unusable_because);
      }
    }
  }
  std::string expected() const { return fmt::format("one of: {}", fmt::join(usable, ", ")); }
};

}  // namespace

void add_backend_choice(CLI::App& command, std::string& backend, bool takes_auto, const std::string& about) {
  const BackendNames names(takes_auto);
  const auto choose = [&backend, names](const std::string& text) {
    if (!is_one_of(names.known, text)) throw BadUsage(bad_value("--backend", text, names.expected()));
    backend = text;
  };
  const std::string absent = names.absent.empty() ? "" : " (" + names.absent + ")";
  command.add_option_function<std::string>("--backend", choose, in_words(names.usable) + about + absent)
      ->type_name("NAME")
      ->default_str(backend);
}

std::vector<std::string> isa_choices() {
  std::vector<std::string> names = {"auto"};
  for (const std::string_view known : kernels::isa_names()) names.emplace_back(known);
  return names;
}

namespace {

std::vector<std::string> contract_choices(bool with_float) {
  std::vector<std::string> ids;
  for (const Contract contract : kContracts) ids.emplace_back(contract_name(contract));
  if (with_float) ids.emplace_back(kFloat);
  return ids;
}

// What is wrong with how a subject is to run, whatever the model.
std::optional<Error> fault_of(const measure::Subject& subject) {
  const auto refused = [](const char* key, const std::string& value, const std::vector<std::string>& choices) {
    return Error{.message = fmt::format("{} cannot be '{}'", key, value),
                 .found = value,
                 .expected = fmt::format("one of: {}", fmt::join(choices, ", "))};
  };
  const BackendNames backends(true);
  const std::vector<std::string> contracts = contract_choices(true);
  if (!is_one_of(backends.known, subject.backend)) return refused("backend", subject.backend, backends.usable);
  if (!is_one_of(isa_choices(), subject.isa)) return refused("isa", subject.isa, isa_choices());
  if (!subject.contract.empty() && !is_one_of(contracts, subject.contract)) {
    return refused("contract", subject.contract, contracts);
  }
  if (subject.isa != "auto" && subject.backend != "auto" && subject.backend != "cpu") {
    return Error{.message = fmt::format("backend '{}' has no instruction sets to choose", subject.backend),
                 .found = fmt::format("backend {}, isa {}", subject.backend, subject.isa),
                 .expected = "an instruction set with the backend cpu, or none"};
  }
  const Status combination = measure::check_combination(subject);
  return combination.ok() ? std::nullopt : std::optional<Error>(combination.error());
}

}  // namespace

CLI::Option* add_settings(CLI::App& command, const std::string& flag, std::string& settings,
                          const std::string& description) {
  const auto take = [&settings, flag](const std::string& text) {
    const Result<measure::Subject> subject = measure::with_settings({}, text);
    std::optional<Error> fault = subject.ok() ? fault_of(*subject) : subject.error();
    if (fault) {
      fault->message = flag + ": " + fault->message;
      throw BadUsage(std::move(*fault));
    }
    settings = text;
  };
  return command.add_option_function<std::string>(flag, take, description)
      ->check(not_empty(flag, description))
      ->type_name("KEY=VALUE,...");
}

void ModelFlags::add_model(CLI::App& command) {
  add_path(command, "MODEL", model, "A .gguf file; of a split model the first part")->required();
}

void ModelFlags::add_machine(CLI::App& command) {
  add_backend(command);
  add_threads(command, n_threads);
  add_pin(command, pin);
}

void ModelFlags::add_backend(CLI::App& command) {
  add_backend_choice(command, backend, true,
                     "; auto is the first that works here with the model, reference the contract as plain loops");
  add_choice(command, "--isa", isa, isa_choices(), "Instruction set of the cpu backend: " + in_words(isa_choices()));
  command.parse_complete_callback([this] {
    if (auto fault = fault_of(subject())) throw BadUsage(std::move(*fault));
  });
}

void ModelFlags::add_contract(CLI::App& command, bool with_float) {
  const std::vector<std::string> choices = contract_choices(with_float);
  add_choice(command, "--contract", contract, choices,
             "Arithmetic to run in, instead of the one the file declares: " + in_words(choices) +
                 (with_float ? " (float arithmetic, any GGUF)" : ""));
}

void ModelFlags::add_session(CLI::App& command) {
  add_contract(command);
  const std::vector<std::string> lanes = {"nvfp4", "kquant"};
  add_choice(command, "--lane", lane, lanes,
             in_words(lanes) + ": refuse a file whose weights are of the other lane; without it the file decides");
  add_cache(command, "Positions of the cache; 0: the model's context, at most 8192");
}

void ModelFlags::add_cache(CLI::App& command, const std::string& about_ctx) {
  add_number(command, "--ctx", n_ctx, about_ctx, 0);
  add_number(command, "--chunk", prefill_chunk, "Tokens of a prefill step; changes speed and memory, never an answer",
             1);
}

void say_note(const std::string& note) {
  say("note: {}\n", note);
}

model::WeightProgress weight_bar() {
  if (isatty(STDERR_FILENO) != 1) return {};
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPatience(500);
  return [start = Clock::now(), bar = std::shared_ptr<Progress>()](std::uint64_t done, std::uint64_t total) mutable {
    if (bar == nullptr && Clock::now() - start > kPatience) bar = std::make_shared<Progress>("weights", total);
    if (bar != nullptr) bar->update(done);
    if (done == total) bar = nullptr;  // ends its line
  };
}

void add_threads(CLI::App& command, int& n_threads) {
  add_number(command, "--threads", n_threads, "Threads; 0: one per core this process may use", 0, 1024);
}

void add_pin(CLI::App& command, std::string& pin) {
  const std::vector<std::string> choices = {kPinAuto, "off"};
  add_choice(command, "--pin", pin, choices,
             in_words(choices) +
                 ": whether threads of the cpu backend keep to a CPU each, or a core each, where there "
                 "are just as many as the process may use");
}

measure::Subject ModelFlags::subject() const {
  return {.model = model,
          .backend = backend,
          .isa = isa,
          .n_threads = n_threads,
          .pins_threads = pin == kPinAuto,
          .contract = contract,
          .prefill_chunk = prefill_chunk,
          .on_note = say_note};
}

engine::LoadOptions ModelFlags::load_options() const {
  return {.backend = backend,
          .machine = {.isa = isa, .n_threads = n_threads, .pins_threads = pin == kPinAuto},
          .contract = contract,
          .lane = lane,
          .on_note = say_note,
          .on_weights = weight_bar()};
}

}  // namespace nibble::apps
