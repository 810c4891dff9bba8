#include "engine/receipt.h"

#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/machine.h"
#include "base/mapped_file.h"

namespace nibble::engine {
namespace {

using Json = nlohmann::ordered_json;

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

}  // namespace

std::string bits_hex(float x) {
  return fmt::format("{:08x}", std::bit_cast<std::uint32_t>(x));
}

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

}  // namespace nibble::engine
