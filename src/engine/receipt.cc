#include "engine/receipt.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/machine.h"
#include "base/mapped_file.h"

namespace nibble::engine {
namespace {

using Json = nlohmann::ordered_json;

// f32 values as their bits in hex: JSON numbers would have to be trusted to round-trip.
std::string bits_hex(float x) {
  return fmt::format("{:08x}", std::bit_cast<std::uint32_t>(x));
}

Json sampling_to_json(const SamplingParams& p) {
  Json bias = Json::object();
  for (const auto& [token, value] : p.logit_bias) bias[std::to_string(token)] = value;
  return {{"temperature", p.temperature},
          {"top_k", p.top_k},
          {"top_p", p.top_p},
          {"min_p", p.min_p},
          {"repetition_penalty", p.repetition_penalty},
          {"presence_penalty", p.presence_penalty},
          {"penalty_window", p.penalty_window},
          {"logit_bias", bias},
          {"seed", p.seed},
          {"request", p.request}};
}

SamplingParams sampling_from_json(const Json& json) {
  SamplingParams p;
  json.at("temperature").get_to(p.temperature);
  json.at("top_k").get_to(p.top_k);
  json.at("top_p").get_to(p.top_p);
  json.at("min_p").get_to(p.min_p);
  json.at("repetition_penalty").get_to(p.repetition_penalty);
  json.at("presence_penalty").get_to(p.presence_penalty);
  json.at("penalty_window").get_to(p.penalty_window);
  for (const auto& [token, value] : json.at("logit_bias").items()) p.logit_bias[std::stoi(token)] = value.get<float>();
  json.at("seed").get_to(p.seed);
  json.at("request").get_to(p.request);
  return p;
}

float bits_from_hex(const std::string& hex) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(hex, nullptr, 16)));
}

FinishReason finish_from_name(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(FinishReason::kCancelled); ++i) {
    if (finish_reason_name(static_cast<FinishReason>(i)) == name) return static_cast<FinishReason>(i);
  }
  throw std::invalid_argument("unknown finish reason '" + name + "'");
}

}  // namespace

Json to_json(const Receipt& r) {
  Json token_logits = Json::array();
  for (const float logit : r.completion.token_logits) token_logits.push_back(bits_hex(logit));
  const auto rate = [](std::size_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0.0; };
  return {{"nibble_receipt", 1},
          {"contract", r.contract},
          {"lane", r.lane},
          {"model_sha256", r.model_sha256},
          {"model_file", r.model_file},
          {"tokenizer_sha256", r.tokenizer_sha256},
          {"chat_template_sha256", r.chat_template_sha256},
          {"prompt_tokens", r.request.prompt},
          {"n_ctx", r.n_ctx},
          {"max_tokens", r.request.max_tokens},
          {"stop", r.request.stops},
          {"ignore_eos", r.request.ignore_eos},
          {"digest_prompt", r.request.digest_prompt},
          {"sampling", sampling_to_json(r.request.sampling)},
          {"tokens", r.completion.tokens},
          {"token_logits", token_logits},
          {"text", r.completion.text},
          {"finish_reason", finish_reason_name(r.completion.finish)},
          {"logits_digest", r.completion.logits_digest},
          {"first_digest_position", r.completion.first_digest_position},
          {"position_digests", r.completion.position_digests},
          {"build", {{"version", kVersion}, {"commit", kCommit}, {"compiler", kCompiler}, {"type", kBuildType}}},
          {"machine",
           {{"cpu", cpu_model_name()},
            {"os", operating_system()},
            {"backend", r.backend},
            {"prefill_chunk", r.prefill_chunk},
            {"reused_positions", r.completion.reused_positions},
            {"prefill_tokens_per_second",
             rate(r.request.prompt.size() - static_cast<std::size_t>(r.completion.reused_positions),
                  r.completion.prefill_seconds)},
            {"decode_tokens_per_second", rate(r.completion.tokens.size(), r.completion.decode_seconds)},
            {"peak_resident_bytes", peak_resident_bytes()}}}};
}

Result<Receipt> receipt_from_json(const std::string& text, const std::string& file) {
  const auto bad = [&file](std::string what) {
    return Error{.message = "not a receipt of nibble",
                 .file = file,
                 .found = std::move(what),
                 .expected = "JSON as 'nibble run --receipt FILE' writes it"};
  };
  try {
    const Json json = Json::parse(text);
    if (!json.is_object() || !json.contains("nibble_receipt")) return bad("no key 'nibble_receipt'");
    if (json.at("nibble_receipt") != 1) return bad("receipt version " + json.at("nibble_receipt").dump());
    Receipt r;
    json.at("contract").get_to(r.contract);
    if (json.contains("lane")) json.at("lane").get_to(r.lane);
    json.at("model_sha256").get_to(r.model_sha256);
    json.at("model_file").get_to(r.model_file);
    json.at("tokenizer_sha256").get_to(r.tokenizer_sha256);
    json.at("chat_template_sha256").get_to(r.chat_template_sha256);
    json.at("prompt_tokens").get_to(r.request.prompt);
    json.at("n_ctx").get_to(r.n_ctx);
    json.at("max_tokens").get_to(r.request.max_tokens);
    if (r.n_ctx < 1 || r.request.max_tokens < 0) return bad("a negative n_ctx or max_tokens");
    json.at("stop").get_to(r.request.stops);
    json.at("ignore_eos").get_to(r.request.ignore_eos);
    json.at("digest_prompt").get_to(r.request.digest_prompt);
    r.request.sampling = sampling_from_json(json.at("sampling"));
    json.at("tokens").get_to(r.completion.tokens);
    for (const Json& hex : json.at("token_logits")) {
      r.completion.token_logits.push_back(bits_from_hex(hex.get<std::string>()));
    }
    json.at("text").get_to(r.completion.text);
    r.completion.finish = finish_from_name(json.at("finish_reason").get<std::string>());
    json.at("logits_digest").get_to(r.completion.logits_digest);
    json.at("first_digest_position").get_to(r.completion.first_digest_position);
    json.at("position_digests").get_to(r.completion.position_digests);
    if (r.completion.token_logits.size() != r.completion.tokens.size())
      return bad("tokens and token_logits of different lengths");
    return r;
  } catch (const std::exception& e) {  // nlohmann::json reports by exception
    return bad(e.what());
  }
}

Status write_receipt(const Receipt& receipt, const std::string& path) {
  const std::string text = to_json(receipt).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  NIBBLE_ASSIGN(AtomicFile file, AtomicFile::create(path));
  NIBBLE_TRY(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

Result<Receipt> read_receipt(const std::string& path) {
  NIBBLE_ASSIGN(const MappedFile map, MappedFile::open(path));
  const std::span<const std::byte> bytes = map.bytes();
  return receipt_from_json(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), path);
}

namespace {

// Between completions whose tokens and position digests are equal: what else a receipt says must be true as well.
std::optional<Difference> other_difference(const Completion& a, const Completion& b) {
  const auto at = [&a](std::int64_t position, std::string description) {
    return Difference{a.first_digest_position + position, std::move(description)};
  };
  if (a.first_digest_position != b.first_digest_position) {
    return at(0, fmt::format("the digests start at position {} in the receipt, at {} here", a.first_digest_position,
                             b.first_digest_position));
  }
  const std::size_t n_prompt = a.position_digests.size() - std::min(a.position_digests.size(), a.tokens.size());
  for (std::size_t j = 0; j < a.tokens.size(); ++j) {
    if (bits_hex(a.token_logits[j]) == bits_hex(b.token_logits[j])) continue;
    return at(static_cast<std::int64_t>(n_prompt + j),
              fmt::format("token {}: recorded logit {}, here {}", a.tokens[j], bits_hex(a.token_logits[j]),
                          bits_hex(b.token_logits[j])));
  }
  if (a.logits_digest != b.logits_digest)
    return at(0, "the digest of the whole run differs from that of its positions");
  if (a.text != b.text) return at(0, "the same tokens, but another text");
  if (a.finish != b.finish && a.finish != FinishReason::kCancelled) {
    return at(0, fmt::format("recorded as ended by {}, here by {}", finish_reason_name(a.finish),
                             finish_reason_name(b.finish)));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Difference> first_difference(const Completion& a, const Completion& b) {
  const std::size_t n_digests = std::min(a.position_digests.size(), b.position_digests.size());
  const auto digest =
      std::mismatch(a.position_digests.begin(), a.position_digests.begin() + static_cast<std::ptrdiff_t>(n_digests),
                    b.position_digests.begin());
  const auto i = static_cast<std::size_t>(digest.first - a.position_digests.begin());
  const bool same = i == n_digests && a.tokens == b.tokens && a.position_digests == b.position_digests;
  if (same) return other_difference(a, b);

  // Sampled token j was drawn from the logits of digest j + (digests of the prompt but its last).
  const std::size_t n_prompt = a.position_digests.size() - std::min(a.position_digests.size(), a.tokens.size());
  const std::int64_t position = a.first_digest_position + static_cast<std::int64_t>(i);
  if (i < n_prompt) {
    return Difference{position, fmt::format("the logits at prompt position {} differ", position)};
  }
  const std::size_t j = i - n_prompt;
  const auto token = [j](const Completion& c) {
    return j < c.tokens.size() ? fmt::format("token {} with logit {:.9g} ({})", c.tokens[j], c.token_logits[j],
                                             bits_hex(c.token_logits[j]))
                               : std::string("no token");
  };
  return Difference{position, fmt::format("at position {}: recorded {}, here {}", position, token(a), token(b))};
}

}  // namespace nibble::engine
