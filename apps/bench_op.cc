// nibble bench op: each kernel and shape beside the limits of the machine.
#include <fmt/format.h>

#include <memory>

#include "apps/bench_commands.h"
#include "apps/console.h"
#include "measure/op_bench.h"

namespace nibble::apps {
namespace {

using measure::Json;

struct OpFlags {
  measure::OpOptions options;
  std::vector<std::string> shapes;
  bool json = false;
  std::string output;
};

void print_row(const Json& row) {
  const bool gemv = row["op"] == "gemv";
  say("{} {:5} m={:<4} {:>6}x{:<6} {:7} {} thread{}  {:8.1f} {}, {:3.0f} % of {:.1f}   cv {:4.1f} %  {}\n",
      row["op"].get<std::string>(), row["format"].get<std::string>(), row["m"].get<int>(), row["n"].get<int>(),
      row["k"].get<int>(), row["isa"].get<std::string>(), row["threads"].get<int>(), row["threads"] == 1 ? " " : "s",
      row["achieved"].get<double>(), gemv ? "GB/s" : "GOP/s", 100 * row["share"].get<double>(),
      row["limit"].get<double>(), 100 * row["cv"].get<double>(),
      row["data"] == "any"   ? ""
      : row["data"] == "ram" ? "from RAM"
                             : "from the cache");
}

Result<int> bench_op(OpFlags& flags) {
  if (!flags.shapes.empty()) flags.options.shapes.clear();
  flags.options.shapes.reserve(flags.shapes.size());
  for (const std::string& text : flags.shapes) {
    NIBBLE_ASSIGN(const measure::OpShape shape, measure::parse_shape(text));
    flags.options.shapes.push_back(shape);
  }
  NIBBLE_ASSIGN(const Json json, measure::bench_ops(flags.options, print_row));
  if (!flags.output.empty()) NIBBLE_TRY(measure::write_json(json, flags.output));
  if (flags.json) write_out(json.dump(1) + "\n");
  say("limits of {} in this run: {}\n", json["machine"]["cpu"].get<std::string>(),
      Json{{"read_gb_per_s", json["machine"]["read_gb_per_s"]}, {"int16_gop_per_s", json["machine"]["int16_gop_per_s"]}}
          .dump());
  return 0;
}

}  // namespace

Command add_bench_op(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("op", "Linear kernels: GB/s, GOP/s and their share of the measured limit");
  auto flags = std::make_shared<OpFlags>();
  measure::OpOptions& options = flags->options;
  command->add_flag("--quick", options.quick, "Ends within 40 seconds");
  command->add_option("--shape", flags->shapes, "Weights as NxK: outputs x inputs (default: 14336x4096,4096x14336)")
      ->delimiter(',');
  command->add_option("--format", options.formats, "nvfp4, f16, bf16, q8_0")->delimiter(',')->capture_default_str();
  command->add_option("-m,--tokens", options.tokens, "Tokens at once; up to 16 are a gemv, more a gemm")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--isa", options.isas, "Instruction sets, or 'all' (default: the best of this machine)")
      ->delimiter(',');
  command->add_option("--threads", options.threads, "Thread counts (default: 1 and all)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  command->add_flag("--from-cache", options.from_cache, "gemv: one small matrix again and again");
  command->add_flag("--json", flags->json, "Rows and limits as JSON on stdout");
  command->add_option("-o,--output", flags->output, "The same JSON into a file");
  return [flags] {
    const Result<int> status = bench_op(*flags);
    return status.ok() ? *status : fail(status.error());
  };
}

}  // namespace nibble::apps
