// nibble bench op: each kernel and shape beside the limits of the machine.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "apps/bench_commands.h"
#include "apps/console.h"
#include "apps/model_flags.h"
#include "apps/output_path.h"
#include "apps/usage.h"
#include "measure/op_bench.h"

namespace nibble::apps {
namespace {

using measure::Json;

struct OpFlags {
  measure::OpOptions options;
  std::string pin = "auto";
  std::string against;
  std::string python = "python3";
  bool json = false;
  std::string output;
};

void add_shapes(CLI::App& command, std::vector<measure::OpShape>& shapes) {
  const auto take = [&shapes](const std::vector<std::string>& texts) {
    shapes.clear();
    for (const std::string& text : elements_or_throw("--shape", texts, "NxK, such as 14336x4096")) {
      const Result<measure::OpShape> shape = measure::parse_shape(text);
      if (!shape.ok()) throw BadUsage(bad_value("--shape", text, shape.error().expected));
      shapes.push_back(*shape);
    }
  };
  command.add_option_function<std::vector<std::string>>("--shape", take, "Weights as NxK: N outputs, K inputs")
      ->type_name("NxK,...")
      ->default_str("14336x4096,4096x14336");
}

void print_row(const Json& row) {
  const bool gemv = row["op"] == "gemv";
  const std::string share =
      row["share"].is_null()
          ? "limit unknown"
          : fmt::format("{:3.0f} % of {:.1f}", 100 * row["share"].get<double>(), row["limit"].get<double>());
  const std::string shortened =
      row.contains("m_asked") ? fmt::format("  no time for m={}", row["m_asked"].get<int>()) : "";
  say("{} {:5} m={:<4} {:>6}x{:<6} {:7} {} thread{}  {:8.1f} {}, {}   cv {:4.1f} % of {}  {}{}\n",
      row["op"].get<std::string>(), row["format"].get<std::string>(), row["m"].get<int>(), row["n"].get<int>(),
      row["k"].get<int>(), row[row["backend"] == "cpu" ? "isa" : "backend"].get<std::string>(),
      row["threads"].get<int>(), row["threads"] == 1 ? " " : "s", row["achieved"].get<double>(),
      gemv ? "GB/s" : "GOP/s", share, 100 * row["cv"].get<double>(), row["repetitions"].get<int>(),
      row["data"] == "any"   ? ""
      : row["data"] == "ram" ? "from RAM"
                             : "from the cache",
      shortened);
  if (!row.contains("peer")) return;
  const Json& speed = row["speed_over_peer"];
  say("     {:.2f} ({:.2f} to {:.2f}) of the speed of ggml, {:.1f}: {}\n", speed["ratio"].get<double>(),
      speed["low"].get<double>(), speed["high"].get<double>(), row["peer"]["achieved"].get<double>(),
      row["peer"]["description"].get<std::string>());
}

// A line that counts rows, on a terminal.
measure::OpProgress row_count() {
  if (isatty(STDERR_FILENO) != 1) return {};
  return [](std::size_t done, std::size_t of) { say("\r{} of {} rows{}", done, of, done == of ? "\r\x1b[K" : ""); };
}

Result<int> bench_op(const OpFlags& flags) {
  NIBBLE_TRY(check_output(flags.output, {flags.python}));
  NIBBLE_ASSIGN(const Json json, measure::bench_ops(flags.options, row_count()));
  if (!flags.output.empty()) NIBBLE_TRY(measure::write_json(json, flags.output));
  if (flags.json) write_out(json.dump(1) + "\n");
  for (const Json& row : json["rows"]) print_row(row);
  if (flags.options.quick && json["budget"]["hit"].get<bool>()) {
    say("the {:.0f} s of --quick did not suffice for five repetitions and all tokens of every row\n",
        flags.options.quick_seconds);
  }
  if (json.contains("left_out")) {
    for (const Json& cell : json["left_out"]) say("no time for {}\n", cell.get<std::string>());
  }
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
  command->add_flag("--quick", options.quick,
                    "Ends within 40 seconds: fewer repetitions, fewer tokens of a gemm; says what it left out");
  add_shapes(*command, options.shapes);
  const std::vector<std::string> formats = measure::op_formats();
  add_choices(*command, "--format", options.formats, formats, "Of the weights: " + in_words(formats));
  add_numbers(*command, "-m,--tokens", options.tokens, "Tokens at once; up to 16 are a gemv, more a gemm", 1, 1 << 16);
  // Not "auto", which would leave open what was measured.
  add_backend_choice(*command, options.backend, false, "; a share of the limit is known of cpu only");
  std::vector<std::string> isas = isa_choices();
  isas.front() = "all";
  add_choices(*command, "--isa", options.isas, isas,
              "Instruction sets of the cpu backend: " + in_words(isas) + " (default: the best of this machine)");
  add_numbers(*command, "--threads", options.threads, "Thread counts (default: 1 and all)", 1, 1024);
  add_pin(*command, flags->pin);
  command->add_flag("--from-cache", options.from_cache, "gemv: one small matrix again and again");
  CLI::Option* against = add_choice(*command, "--against", flags->against, {"ggml"},
                                    "ggml: its CPU kernels on the same shape and format, in turn");
  add_path(*command, "--python", flags->python, "A Python with llama-cpp-python")
      ->needs(against)
      ->capture_default_str();
  command->parse_complete_callback([flags] {
    for (const measure::OpShape& shape : flags->options.shapes) {
      for (const std::string& format : flags->options.formats) {
        Status status = measure::check_op_row(format, shape.k);
        if (status.ok()) continue;
        Error error = std::move(status).error();
        error.message = "--shape: " + error.message;
        error.found = fmt::format("{}x{}", shape.n, shape.k);
        error.expected = "K " + error.expected;
        throw BadUsage(std::move(error));
      }
    }
  });
  command->add_flag("--json", flags->json, "Rows and limits as JSON on stdout");
  add_path(*command, "-o,--output", flags->output, "The same JSON into a file");
  return [flags] {
    flags->options.pins_threads = flags->pin == "auto";
    if (!flags->against.empty()) flags->options.ggml_python = flags->python;
    return bench_op(*flags);
  };
}

}  // namespace nibble::apps
