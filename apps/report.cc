// nibble report: pictures about a model file, as one HTML page.
#include "measure/report.h"

#include <fmt/format.h>

#include <memory>

#include "apps/commands.h"
#include "apps/console.h"
#include "apps/output_path.h"
#include "apps/usage.h"
#include "base/machine.h"
#include "base/thread_pool.h"

namespace nibble::apps {
namespace {

using measure::Json;

struct ReportFlags {
  std::string model;
  std::string source;
  std::string quality;
  std::string speed;
  std::string output;
  std::string svg;
};

Result<std::unique_ptr<Json>> read_receipt(const std::string& path) {
  if (path.empty()) return std::unique_ptr<Json>();
  NIBBLE_ASSIGN(const std::string text, measure::read_text(path));
  auto json = std::make_unique<Json>(Json::parse(text, nullptr, false));
  if (json->is_discarded()) return Error{.message = "not JSON", .file = path, .expected = "a receipt"};
  return json;
}

std::vector<std::string> inputs_of(const ReportFlags& flags) {
  return {flags.model, flags.source, flags.quality, flags.speed};
}

std::string picture_path(const ReportFlags& flags, std::string_view name) {
  return fmt::format("{}_{}.svg", flags.svg, name);
}

Result<int> write_pictures(const measure::ReportParts& parts, const ReportFlags& flags) {
  NIBBLE_ASSIGN(const auto pictures, measure::report_pictures(parts));
  for (const measure::Picture& picture : pictures) {
    NIBBLE_TRY(check_output(picture_path(flags, picture.name), inputs_of(flags)));
  }
  for (const measure::Picture& picture : pictures) {
    const std::string path = picture_path(flags, picture.name), svg = measure::standalone(picture);
    NIBBLE_TRY(measure::write_text(svg, path));
    say("{}: {}\n", path, human_bytes(svg.size()));
  }
  return 0;
}

Result<int> report(const ReportFlags& flags) {
  NIBBLE_TRY(check_output(flags.output, inputs_of(flags)));
  if (!flags.svg.empty()) NIBBLE_TRY(check_output(picture_path(flags, "bits"), inputs_of(flags)));  // one for all
  ThreadPool pool(hardware_threads());
  NIBBLE_ASSIGN(const Checkpoint quantized, Checkpoint::open(flags.model, &pool));
  std::unique_ptr<Checkpoint> source;
  if (!flags.source.empty()) {
    NIBBLE_ASSIGN(Checkpoint opened, Checkpoint::open(flags.source, &pool));
    source = std::make_unique<Checkpoint>(std::move(opened));
  }
  if (source != nullptr && quantized.nvfp4_weights().empty()) {
    return Error{.message = "there is no error to measure: no tensor of the file is NVFP4",
                 .file = flags.model,
                 .found = "--source " + flags.source,
                 .expected = "an NVFP4 file, such as 'nibble quantize' makes",
                 .hint = "without --source the page shows types, sizes and bits a weight of any file"};
  }
  NIBBLE_ASSIGN(const auto quality, read_receipt(flags.quality));
  NIBBLE_ASSIGN(const auto speed, read_receipt(flags.speed));
  NIBBLE_ASSIGN(const auto tensors, measure::tensor_errors(source.get(), quantized, pool));
  const std::vector<measure::TensorGroup> contents = measure::tensor_groups(quantized.file());
  const measure::ReportParts parts = {.title = flags.model.substr(flags.model.rfind('/') + 1),
                                      .contents = contents,
                                      .tensors = tensors,
                                      .has_source = source != nullptr,
                                      .quality = quality.get(),
                                      .speed = speed.get()};
  if (!flags.output.empty()) {
    NIBBLE_ASSIGN(const std::string page, measure::render_report(parts));
    NIBBLE_TRY(measure::write_text(page, flags.output));
    say("{}: {} NVFP4 tensors{}, {}\n", flags.output, tensors.size(),
        tensors.empty() ? ", so types and sizes only" : "", human_bytes(page.size()));
  }
  return flags.svg.empty() ? 0 : write_pictures(parts, flags);
}

}  // namespace

Command add_report(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "Pictures about a model file: one HTML page");
  auto flags = std::make_shared<ReportFlags>();
  add_path(*command, "MODEL", flags->model, "A .gguf file; NVFP4 for codes, scales and errors")->required();
  add_path(*command, "--source", flags->source, "The .gguf it was made of: error by layer and tensor");
  add_path(*command, "--quality", flags->quality, "A receipt of nibble compare");
  add_path(*command, "--speed", flags->speed, "A receipt of nibble bench op");
  add_path(*command, "-o,--output", flags->output, "The page (.html)");
  add_path(*command, "--svg", flags->svg, "Each picture as a file of its own, PREFIX_NAME.svg")->type_name("PREFIX");
  return [flags, command]() -> Result<int> {
    if (flags->output.empty() && flags->svg.empty()) {
      return wrong_usage(*command, {.message = "nibble report needs a place for its pictures",
                                    .found = "neither --output nor --svg",
                                    .expected = "-o PAGE.html, --svg PREFIX, or both"});
    }
    return report(*flags);
  };
}

}  // namespace nibble::apps
