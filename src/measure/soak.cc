#include "measure/soak.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "base/machine.h"
#include "engine/generate.h"
#include "measure/model_bench.h"

namespace nibble::measure {
namespace {

constexpr std::size_t kLengths[] = {1, 5, 17, 64, 65, 128, 200, 300};  // around a step, a block and a chunk
constexpr int kMostGenerated = 24;
constexpr int kRunsPerSession = 10;
constexpr std::size_t kMostSamples = 200;  // of memory, in the receipt

struct Prompt {
  engine::GenerateRequest request;
  std::string digest = {};  // of the first run
  std::uint64_t runs = 0;
};

// Beginnings of two sequences, so that one prompt often finds a part of itself in the cache of another.
Result<std::vector<Prompt>> make_prompts(const engine::LoadedModel& loaded) {
  const auto longest = static_cast<std::size_t>(loaded.model->config.context_length - kMostGenerated);
  std::vector<Prompt> prompts;
  NIBBLE_ASSIGN(const auto tokens, task_tokens(loaded.tokenizer, "", 2 * std::max(kLengths[7], longest)));
  for (int i = 0; i < 2; ++i) {
    for (const std::size_t length : kLengths) {
      if (length > longest) continue;
      const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(i * kLengths[7]);
      Prompt prompt;
      prompt.request.prompt.assign(first, first + static_cast<std::ptrdiff_t>(length));
      prompt.request.max_tokens = 1 + static_cast<int>(7 * prompts.size()) % kMostGenerated;
      prompt.request.ignore_eos = true;
      if (prompts.size() % 2 == 1) prompt.request.sampling = {.temperature = 0.8F, .top_k = 40, .seed = length};
      prompts.push_back(std::move(prompt));
    }
  }
  if (!prompts.empty()) return prompts;
  return Error{.message = "the model's context is too short for a soak",
               .found = fmt::format("{} tokens", loaded.model->config.context_length),
               .expected = fmt::format("more than {}", kMostGenerated)};
}

class Soak {
 public:
  Soak(const Subject& subject, const SoakOptions& options, const SoakProgress& progress)
      : subject_(subject), options_(options), progress_(progress) {}

  Result<Json> run() {
    while (elapsed() < options_.seconds || resident_.size() <= n_warm()) {
      NIBBLE_TRY(load_and_run(options_.threads[resident_.size() % options_.threads.size()]));
      resident_.push_back(resident_bytes());
      if (progress_) progress_({elapsed(), runs_, resident_.back()});
    }
    return to_json();
  }

 private:
  double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  std::size_t n_warm() const { return 2 * options_.threads.size(); }
  std::size_t draw(std::size_t n) { return random_() % n; }

  Status load_and_run(int n_threads) {
    NIBBLE_ASSIGN(const auto loaded,
                  engine::load(subject_.model, {.backend = subject_.backend,
                                                .machine = {.isa = subject_.isa, .n_threads = n_threads},
                                                .contract = subject_.contract}));
    if (prompts_.empty()) {
      NIBBLE_ASSIGN(prompts_, make_prompts(*loaded));
    }
    std::unique_ptr<engine::Session> session;
    int chunk = 0;
    for (int i = 0; i < options_.runs_per_load; ++i) {
      if (i % kRunsPerSession == 0) {
        chunk = options_.chunks[draw(options_.chunks.size())];
        const int n_ctx = static_cast<int>(prompts_.back().request.prompt.size()) + kMostGenerated;
        session.reset();  // one cache at a time
        NIBBLE_ASSIGN(session, engine::Session::create(*loaded->model, {.n_ctx = n_ctx, .prefill_chunk = chunk}));
      }
      if (draw(2) == 0) session->clear();
      NIBBLE_TRY(run_one(prompts_[draw(prompts_.size())], *loaded, *session,
                         fmt::format("{} threads, chunks of {}", n_threads, chunk)));
      if (elapsed() > options_.seconds && resident_.size() > n_warm()) break;
    }
    return ok_status();
  }

  Status run_one(Prompt& prompt, const engine::LoadedModel& loaded, engine::Session& session, const std::string& how) {
    NIBBLE_ASSIGN(const engine::Completion answer, engine::generate(session, loaded.tokenizer, prompt.request));
    ++runs_;
    ++prompt.runs;
    tokens_ += prompt.request.prompt.size() - static_cast<std::size_t>(answer.reused_positions) + answer.tokens.size();
    if (prompt.digest.empty()) prompt.digest = answer.logits_digest;
    if (prompt.digest == answer.logits_digest) return ok_status();
    return Error{.message = "the same prompt has other logits than before",
                 .key = fmt::format("prompt of {} tokens, run {}", prompt.request.prompt.size(), runs_),
                 .found = fmt::format("{} ({}, {} positions from the cache)", answer.logits_digest, how,
                                      answer.reused_positions),
                 .expected = prompt.digest,
                 .hint = "this is a fault of nibble or of the machine, please report it"};
  }

  Json resident_to_json() const {
    const auto warm = resident_.begin() + static_cast<std::ptrdiff_t>(n_warm());
    const std::uint64_t baseline = *std::max_element(resident_.begin(), warm);
    const std::uint64_t largest = *std::max_element(warm, resident_.end());
    Json samples = Json::array();
    const std::size_t step = (resident_.size() + kMostSamples - 1) / kMostSamples;
    for (std::size_t i = 0; i < resident_.size(); i += step) samples.push_back(resident_[i]);
    return {{"baseline_bytes", baseline},
            {"largest_bytes", largest},
            {"growth_bytes", largest > baseline ? largest - baseline : 0},
            {"samples_bytes", samples}};
  }

  Json to_json() const {
    Json json = {{"seconds", elapsed()}, {"loads", resident_.size()}, {"runs", runs_}, {"tokens", tokens_}};
    json["prompts"] = Json::array();
    for (const Prompt& prompt : prompts_) {
      json["prompts"].push_back({{"tokens", prompt.request.prompt.size()},
                                 {"generated", prompt.request.max_tokens},
                                 {"temperature", prompt.request.sampling.temperature},
                                 {"runs", prompt.runs},
                                 {"digest", prompt.digest}});
    }
    json["resident"] = resident_to_json();
    json["passed"] = json["resident"]["growth_bytes"].get<std::uint64_t>() <= options_.max_growth_bytes;
    return json;
  }

  const Subject& subject_;
  const SoakOptions& options_;
  const SoakProgress& progress_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::mt19937_64 random_{11};
  std::vector<Prompt> prompts_;
  std::vector<std::uint64_t> resident_;  // after each load
  std::uint64_t runs_ = 0, tokens_ = 0;
};

}  // namespace

Result<Json> soak(const Subject& subject, const SoakOptions& options, const SoakProgress& progress) {
  if (options.threads.empty() || options.chunks.empty()) {
    return Error{.message = "a soak needs a thread count and a chunk size", .expected = "one of each, or more"};
  }
  Json json = {{"what", "bench soak"}};
  json.update(program_facts());
  json["machine"] = machine_facts();
  {
    NIBBLE_ASSIGN(const OpenSubject open, open_subject(subject));
    json["model"] = subject_facts(open);
  }
  json["settings"] = {{"seconds", options.seconds},
                      {"threads", options.threads},
                      {"chunks", options.chunks},
                      {"runs_per_load", options.runs_per_load},
                      {"max_growth_bytes", options.max_growth_bytes}};
  NIBBLE_ASSIGN(const Json found, Soak(subject, options, progress).run());
  json.update(found);
  return json;
}

}  // namespace nibble::measure
