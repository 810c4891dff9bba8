#include "apps/generation_flags.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "apps/usage.h"
#include "base/utf8.h"

namespace nibble::apps {
namespace {

constexpr const char* kTemperature = "--temp";
constexpr const char* kTopK = "--top-k";
constexpr const char* kTopP = "--top-p";
constexpr const char* kMinP = "--min-p";
constexpr const char* kRepetitionPenalty = "--repeat-penalty";
constexpr const char* kPresencePenalty = "--presence-penalty";
constexpr const char* kPenaltyWindow = "--repeat-last-n";
constexpr const char* kLogitBias = "--logit-bias";

// The flag behind each parameter that check_sampling_params names.
constexpr std::pair<std::string_view, const char*> kFlags[] = {{"temperature", kTemperature},
                                                               {"top_k", kTopK},
                                                               {"top_p", kTopP},
                                                               {"min_p", kMinP},
                                                               {"logit_bias", kLogitBias},
                                                               {"repetition_penalty", kRepetitionPenalty},
                                                               {"penalty_window", kPenaltyWindow},
                                                               {"presence_penalty", kPresencePenalty}};

std::pair<std::int32_t, float> parse_bias(const std::string& text) {
  const std::size_t equals = text.find('=');
  std::pair<std::int32_t, float> bias;
  if (equals == std::string::npos || !parse_number(std::string_view(text).substr(0, equals), bias.first) ||
      !parse_number(std::string_view(text).substr(equals + 1), bias.second)) {
    throw BadUsage(bad_value(kLogitBias, text, "ID=BIAS, such as 42=-100"));
  }
  return bias;
}

std::string check_stop(const std::string& text) {
  Status status = check_utf8(text, "--stop");
  if (!status.ok()) throw BadUsage(std::move(status).error());
  if (text.empty()) throw BadUsage(bad_value("--stop", text, "some text"));
  return {};
}

}  // namespace

void GenerationFlags::add(CLI::App& command) {
  add_number(command, "-n,--n-predict", max_tokens, "Tokens to generate at most", 0);
  add_number(command, kTemperature, sampling.temperature, "Temperature; 0: always the most likely token");
  add_number(command, kTopK, sampling.top_k, "Only the k most likely tokens; 0: off", 0);
  add_number(command, kTopP, sampling.top_p, "Only the likeliest tokens that hold this probability; 1: off");
  add_number(command, kMinP, sampling.min_p, "Only tokens at least this likely relative to the likeliest; 0: off");
  add_number(command, kRepetitionPenalty, sampling.repetition_penalty, "Makes seen tokens less likely; 1: off");
  add_number(command, kPresencePenalty, sampling.presence_penalty, "Subtracted from the logits of seen tokens; 0: off");
  add_number(command, kPenaltyWindow, sampling.penalty_window, "How many of the last tokens count as seen; -1: all",
             -1);
  const auto add_biases = [this](const std::vector<std::string>& entries) {
    for (const std::string& entry : entries) {
      const auto [token, bias] = parse_bias(entry);
      sampling.logit_bias[token] = bias;
    }
  };
  command
      .add_option_function<std::vector<std::string>>(kLogitBias, add_biases,
                                                     "Added to the logit of token ID; may be repeated")
      ->type_name("ID=BIAS")
      ->allow_extra_args(false);
  add_number(command, "--seed", sampling.seed, "The same seed, prompt and flags give the same answer");
  command.add_option("--stop", stops, "Text that ends the answer and is not printed; may be repeated")
      ->check(check_stop)
      ->allow_extra_args(false);
  command.add_flag("--ignore-eos", ignore_eos, "Go on after the model has ended its answer");
}

std::optional<Error> GenerationFlags::fault() const {
  Status status = engine::check_sampling_params(sampling);
  if (status.ok()) return std::nullopt;
  Error error = std::move(status).error();
  for (const auto& [parameter, flag] : kFlags) {
    if (error.key == parameter) error.message = fmt::format("{} is out of range", flag);
  }
  error.key.clear();
  return error;
}

engine::GenerateRequest GenerationFlags::request(std::vector<std::int32_t> prompt) const {
  return {.prompt = std::move(prompt),
          .max_tokens = max_tokens,
          .sampling = sampling,
          .stops = stops,
          .ignore_eos = ignore_eos};
}

}  // namespace nibble::apps
