// nibble doctor: what this machine is and what nibble can do on it.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/console.h"
#include "base/build_info.h"
#include "base/cpus.h"
#include "base/machine.h"
#include "base/thread_pool.h"
#include "kernels/cpu/detect.h"
#include "kernels/limits.h"
#include "kernels/registry.h"

namespace nibble::apps {
namespace {

using Json = nlohmann::ordered_json;

struct DoctorFlags {
  bool json = false;
};

// What the cpu backend does with as many threads as it starts unless told otherwise.
std::string pinning(int n_threads) {
  const std::vector<std::vector<int>> cores = usable_cores();
  if (n_threads == 1) return "one thread, placed by the system";
  if (places_of_threads(n_threads, cores).empty()) return fmt::format("{} threads, placed by the system", n_threads);
  const bool is_core = static_cast<std::size_t>(n_threads) == cores.size();
  return fmt::format("{} threads, each on a {} of its own (--pin off: placed by the system)", n_threads,
                     is_core ? "core" : "CPU");
}

Json examine() {
  const int n_threads = hardware_threads();
  Json report = {{"version", kVersion},     {"commit", kCommit},
                 {"compiler", kCompiler},   {"build", kBuildType},
                 {"cpu", cpu_model_name()}, {"os", operating_system()},
                 {"threads", n_threads},    {"memory_bytes", physical_memory_bytes()}};
  Json bandwidth = Json::object();
  for (int n = 1; n <= n_threads; n *= 2) bandwidth[std::to_string(n)] = kernels::read_bandwidth(n);
  if ((n_threads & (n_threads - 1)) != 0) bandwidth[std::to_string(n_threads)] = kernels::read_bandwidth(n_threads);
  report["read_gb_per_s"] = bandwidth;
  report["pinning"] = pinning(n_threads);
  Json isas = Json::array();
  for (const kernels::cpu::IsaState& isa : kernels::cpu::isa_states()) {
    isas.push_back({{"name", isa.name}, {"needs", isa.needs}, {"unusable_because", isa.unusable_because}});
  }
  report["isas"] = isas;
  Json backends = Json::array();
  for (const kernels::BackendState& backend : kernels::backend_states()) {
    Json entry = {{"name", backend.name}, {"unusable_because", backend.unusable_because}};
    if (backend.unusable_because.empty()) {
      const auto made = kernels::make_backend(backend.name, {});  // runs the start-up canary
      entry["canary"] = made.ok() ? "passed" : made.error().message;
      if (made.ok()) entry["description"] = (*made)->description();
    }
    backends.push_back(entry);
  }
  report["backends"] = backends;
  return report;
}

std::string usable_or(const std::string& reason) {
  return reason.empty() ? "usable" : "not usable: " + reason;
}

void print(const Json& r) {
  const auto text = [&r](const char* key) { return r[key].get<std::string>(); };
  write_out(fmt::format("nibble     {} ({}), {}, {}\ncpu        {}\nsystem     {}, {} threads, {} memory\n",
                        text("version"), text("commit"), text("compiler"), text("build"), text("cpu"), text("os"),
                        r["threads"].get<int>(), human_bytes(r["memory_bytes"].get<std::uint64_t>())));
  std::string bandwidth;
  for (const auto& [n, rate] : r["read_gb_per_s"].items()) {
    bandwidth += fmt::format("{}{:.1f} GB/s with {} thread{}", bandwidth.empty() ? "" : ", ", rate.get<double>(), n,
                             n == "1" ? "" : "s");
  }
  write_out("reads      " + bandwidth + "\nplaces     " + text("pinning") + "\n\ninstruction sets\n");
  for (const Json& isa : r["isas"]) {
    write_out(fmt::format("  {:10} {} (needs {})\n", isa["name"].get<std::string>(),
                          usable_or(isa["unusable_because"].get<std::string>()), isa["needs"].get<std::string>()));
  }
  write_out("\nbackends\n");
  for (const Json& backend : r["backends"]) {
    std::string state = usable_or(backend["unusable_because"].get<std::string>());
    if (backend.contains("description")) state = backend["description"].get<std::string>();
    if (backend.contains("canary")) state += "; start-up canary: " + backend["canary"].get<std::string>();
    write_out(fmt::format("  {:10} {}\n", backend["name"].get<std::string>(), state));
  }
}

}  // namespace

Command add_doctor(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("doctor", "What this machine is, its read bandwidth, and which backends can run");
  auto flags = std::make_shared<DoctorFlags>();
  command->add_flag("--json", flags->json, "As JSON");
  return [flags] {
    const Json report = examine();
    if (flags->json) {
      write_out(report.dump(1) + "\n");
    } else {
      print(report);
    }
    return 0;
  };
}

}  // namespace nibble::apps
