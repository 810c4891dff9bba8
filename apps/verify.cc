// nibble verify: every check of a model file, all faults listed.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/console.h"
#include "apps/usage.h"
#include "base/hint.h"
#include "base/machine.h"
#include "base/thread_pool.h"
#include "engine/check_model.h"

namespace nibble::apps {
namespace {

struct VerifyFlags {
  std::string model;
  bool json = false;
};

nlohmann::ordered_json fault_to_json(const Error& fault) {
  nlohmann::ordered_json json = {{"file", fault.file},
                                 {"tensor", fault.subject()},  // or the metadata key
                                 {"found", fault.found},
                                 {"expected", fault.expected},
                                 {"message", fault.message}};
  if (!fault.hint.empty()) json["hint"] = plain_hint(fault.hint);
  return json;
}

int verify(const VerifyFlags& flags) {
  ThreadPool pool(hardware_threads());
  std::unique_ptr<Progress> progress;
  const CheckReport report = engine::check_model(flags.model, &pool, [&](std::uint64_t done, std::uint64_t total) {
    if (!progress && !flags.json) progress = std::make_unique<Progress>("verify", total);
    if (progress) progress->update(done);
  });
  progress.reset();
  if (flags.json) {
    nlohmann::ordered_json faults = nlohmann::ordered_json::array();
    for (const Error& fault : report.faults) faults.push_back(fault_to_json(fault));
    const nlohmann::ordered_json json = {{"ok", report.ok()},
                                         {"lane", report.lane ? lane_name(*report.lane) : ""},
                                         {"contract", report.contract ? contract_name(*report.contract) : ""},
                                         {"faults", faults}};
    write_out(json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  } else if (report.ok()) {
    write_out(fmt::format("OK: {} tensors, {} checked, lane {}, contract {}\n", report.n_tensors,
                          human_bytes(report.n_bytes), lane_name(*report.lane), contract_name(*report.contract)));
  } else {
    for (const Error& fault : report.faults) say("fault: {}\n", fault.to_string());
    say("{}: {} fault{}\n", flags.model, report.faults.size(), report.faults.size() == 1 ? "" : "s");
  }
  return report.ok() ? 0 : 1;
}

}  // namespace

Command add_verify(CLI::App& app) {
  CLI::App* command = app.add_subcommand("verify", "Every check of a model file: OK, or all its faults");
  auto flags = std::make_shared<VerifyFlags>();
  add_path(*command, "MODEL", flags->model, "A .gguf file; of a split model the first part")->required();
  command->add_flag("--json", flags->json, R"(Print {"ok": ..., "faults": [...]} on stdout)");
  return [flags] { return verify(*flags); };
}

}  // namespace nibble::apps
