#include "measure/model_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/machine.h"
#include "kernels/limits.h"

namespace nibble::measure {
namespace {

struct Cell {
  Contender* contender = nullptr;
  const char* label = "";
  std::vector<double> seconds = {};
  std::string digest = {};
};

Status take_sample(Cell& cell, bool counts) {
  NIBBLE_ASSIGN(Sample sample, cell.contender->run());
  if (cell.digest.empty()) cell.digest = sample.digest;
  if (cell.digest != sample.digest) {
    return Error{.message = fmt::format("{} did not compute the same logits twice", cell.label),
                 .found = sample.digest,
                 .expected = cell.digest,
                 .hint = "its times mean nothing; if this is nibble, it is a fault: please report it"};
  }
  if (counts) cell.seconds.push_back(sample.seconds);
  return ok_status();
}

Json cell_to_json(const Cell& cell, const Task& task) {
  Json json = {{"label", cell.label}};
  json.update(cell.contender->facts());
  const double s = median(cell.seconds);
  json["samples_s"] = cell.seconds;
  json["median_s"] = s;
  json["cv"] = population_cv(cell.seconds);
  if (task.work != Work::kLoad) json["tokens_per_s"] = static_cast<double>(task.tokens.size()) / s;
  json["digest"] = cell.digest;
  return json;
}

Json speed_to_json(const Cell& a, const Cell& b) {
  const Ratio ratio = ratio_of_medians(b.seconds, a.seconds);
  return {
      {"ratio", ratio.value},
      {"low", ratio.low},
      {"high", ratio.high},
      {"excludes_one", ratio.excludes_one()},
      {"method", fmt::format("median of B / median of A; 95 % percentile bootstrap, {} resamples of {} pairs adjacent "
                             "in time",
                             kResamples, a.seconds.size())}};
}

}  // namespace

Result<std::vector<std::int32_t>> task_tokens(const text::Tokenizer& tokenizer, const std::string& text,
                                              std::size_t n) {
  std::vector<std::int32_t> tokens;
  if (text.empty()) {
    std::mt19937_64 random(7);
    const auto vocab_size = static_cast<std::uint64_t>(tokenizer.vocab_size());
    while (tokens.size() < n) tokens.push_back(static_cast<std::int32_t>(random() % vocab_size));
    return tokens;
  }
  NIBBLE_ASSIGN(tokens, tokenizer.encode(text));
  if (tokens.size() < n) {
    return Error{.message = "the text is too short",
                 .found = fmt::format("{} tokens", tokens.size()),
                 .expected = fmt::format("at least {}", n)};
  }
  tokens.resize(n);
  return tokens;
}

Result<Task> make_task(Work work, const std::string& model, const std::string& text_file, int n_prefix, int n_tokens) {
  NIBBLE_ASSIGN(const auto file, GgufFile::open(model));
  NIBBLE_ASSIGN(const model::Config config, model::read_config(file));
  NIBBLE_ASSIGN(text::Tokenizer tokenizer, engine::load_tokenizer(file, config.vocab_size));
  std::string text;
  if (!text_file.empty()) {
    NIBBLE_ASSIGN(text, read_text(text_file));
  }
  const std::size_t prefix = work == Work::kDecode ? static_cast<std::size_t>(n_prefix) : 0;
  const std::size_t n = work == Work::kLoad ? 1 : static_cast<std::size_t>(n_tokens);
  if (prefix + n > static_cast<std::size_t>(config.context_length)) {
    return Error{.message = "the model's context is shorter than the task",
                 .file = model,
                 .found = fmt::format("{} tokens", prefix + n),
                 .expected = fmt::format("at most {}", config.context_length)};
  }
  NIBBLE_ASSIGN(const std::vector<std::int32_t> tokens, task_tokens(tokenizer, text, prefix + n));
  const auto middle = tokens.begin() + static_cast<std::ptrdiff_t>(prefix);
  return Task{work, {tokens.begin(), middle}, {middle, tokens.end()}, tokenizer.digest()};
}

Result<Json> bench_model(const Task& task, Contender& a, Contender* b, const BenchOptions& options,
                         const BenchProgress& progress) {
  if (options.repetitions < static_cast<int>(kMinPairs)) {
    return Error{.message = "too few repetitions to say anything",
                 .found = fmt::format("{}", options.repetitions),
                 .expected = fmt::format("at least {}", kMinPairs)};
  }
  Cell cells[2] = {{.contender = &a, .label = "A"}, {.contender = b, .label = "B"}};
  const std::size_t n_cells = b != nullptr ? 2 : 1;
  const int rounds = options.warmups + options.repetitions;
  const double bandwidth_before = kernels::read_bandwidth(hardware_threads());
  for (int round = 0; round < rounds; ++round) {
    // Who went first goes second the next time: a clock that falls slowly is no advantage.
    for (std::size_t i = 0; i < n_cells; ++i) {
      NIBBLE_TRY(take_sample(cells[round % 2 == 0 ? i : n_cells - 1 - i], round >= options.warmups));
    }
    if (progress) progress(round + 1, rounds);
  }
  Json json = {{"what", fmt::format("bench {}", work_name(task.work))}};
  json.update(program_facts());
  json["machine"] = machine_facts();
  json["machine"]["read_gb_per_s"] = std::max(bandwidth_before, kernels::read_bandwidth(hardware_threads()));
  json["settings"] = {{"prefix_tokens", task.prefix.size()},
                      {"timed_tokens", task.tokens.size()},
                      {"warmups", options.warmups},
                      {"repetitions", options.repetitions}};
  json["cells"] = Json::array({cell_to_json(cells[0], task)});
  if (b == nullptr) return json;
  json["cells"].push_back(cell_to_json(cells[1], task));
  const bool have_digests = !cells[0].digest.empty() && !cells[1].digest.empty();
  json["same_logits"] = have_digests ? Json(cells[0].digest == cells[1].digest) : Json();
  json["speed_of_a"] = speed_to_json(cells[0], cells[1]);
  return json;
}

}  // namespace nibble::measure
