#include "apps/generation_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

namespace nibble::apps {
namespace {

template <typename T>
bool parse_whole(std::string_view text, T& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

}  // namespace

void GenerationFlags::add(CLI::App& command) {
  command.add_option("-n,--n-predict", max_tokens, "Tokens to generate at most")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--temp", sampling.temperature, "Temperature; 0: always the most likely token")
      ->capture_default_str();
  command.add_option("--top-k", sampling.top_k, "Only the k most likely tokens; 0: off")->capture_default_str();
  command.add_option("--top-p", sampling.top_p, "Only the likeliest tokens that hold this probability; 1: off")
      ->capture_default_str();
  command.add_option("--min-p", sampling.min_p, "Only tokens at least this likely relative to the likeliest; 0: off")
      ->capture_default_str();
  command.add_option("--repeat-penalty", sampling.repetition_penalty, "Makes seen tokens less likely; 1: off")
      ->capture_default_str();
  command
      .add_option("--presence-penalty", sampling.presence_penalty, "Subtracted from the logits of seen tokens; 0: off")
      ->capture_default_str();
  command.add_option("--repeat-last-n", sampling.penalty_window, "How many of the last tokens count as seen; -1: all")
      ->capture_default_str();
  command.add_option("--logit-bias", logit_bias, "ID=BIAS, added to the logit of token ID; may be repeated")
      ->allow_extra_args(false);
  command.add_option("--seed", sampling.seed, "The same seed, prompt and flags give the same answer")
      ->capture_default_str();
  command.add_option("--stop", stops, "Text that ends the answer and is not printed; may be repeated")
      ->allow_extra_args(false);
  command.add_flag("--ignore-eos", ignore_eos, "Go on after the model has ended its answer");
}

Result<engine::GenerateRequest> GenerationFlags::request(std::vector<std::int32_t> prompt) const {
  engine::GenerateRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling = sampling;
  request.stops = stops;
  request.ignore_eos = ignore_eos;
  for (const std::string& entry : logit_bias) {
    const std::size_t equals = entry.find('=');
    std::int32_t id = 0;
    float bias = 0;
    if (equals == std::string::npos || !parse_whole(std::string_view(entry).substr(0, equals), id) ||
        !parse_whole(std::string_view(entry).substr(equals + 1), bias)) {
      return Error{.message = "bad --logit-bias", .found = entry, .expected = "ID=BIAS, such as 42=-100"};
    }
    request.sampling.logit_bias[id] = bias;
  }
  return request;
}

}  // namespace nibble::apps
