// nibble replay: runs a receipt again, on any backend, and says whether every logit came out the same.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "apps/commands.h"
#include "apps/console.h"
#include "apps/model_flags.h"
#include "apps/usage.h"
#include "engine/receipt.h"
#include "io/gguf.h"

namespace nibble::apps {
namespace {

struct ReplayFlags {
  ModelFlags model;
  std::string receipt;
};

Status check_same(const std::string& what, const char* key, const std::string& recorded, const std::string& here,
                  const ReplayFlags& flags) {
  if (recorded == here) return ok_status();
  return Error{.message = fmt::format("the receipt was made with another {}", what),
               .file = flags.model.model,
               .found = here,
               .expected = fmt::format("{}, {} of {}", recorded, key, flags.receipt)};
}

// The receipt is about this very file: judged before anything that the file could be refused for.
Status check_model(const engine::Receipt& receipt, const ReplayFlags& flags) {
  NIBBLE_ASSIGN(const GgufFile file, GgufFile::open(flags.model.model));
  NIBBLE_ASSIGN(const std::string sha256, engine::model_sha256(file));
  return check_same(fmt::format("model file, {}", receipt.model_file), "model_sha256", receipt.model_sha256, sha256,
                    flags);
}

// What the model cannot be asked is the fault of the receipt.
Status check_prompt(const engine::Receipt& receipt, const engine::Session& session, int vocab_size,
                    const std::string& file) {
  const std::vector<std::int32_t>& prompt = receipt.request.prompt;
  if (prompt.size() > static_cast<std::size_t>(session.n_ctx())) {
    return Error{.message = "the prompt of the receipt does not fit into the context",
                 .file = file,
                 .key = "prompt_tokens",
                 .found = fmt::format("{} tokens", prompt.size()),
                 .expected = fmt::format("at most {}", session.n_ctx())};
  }
  const auto stranger = std::ranges::find_if(prompt, [&](std::int32_t id) { return id >= vocab_size; });
  if (stranger == prompt.end()) return ok_status();
  return Error{.message = "a token id of the receipt is outside of the model's vocabulary",
               .file = file,
               .key = fmt::format("prompt_tokens[{}]", stranger - prompt.begin()),
               .found = fmt::format("{}", *stranger),
               .expected = fmt::format("0..{}", vocab_size - 1)};
}

Result<int> replay(const ReplayFlags& flags) {
  NIBBLE_ASSIGN(const engine::Receipt receipt, engine::read_receipt(flags.receipt));
  if (receipt.completion.position_digests.empty()) {
    return Error{.message = "the receipt records no logits, so there is nothing to compare",
                 .file = flags.receipt,
                 .found = fmt::format("{} tokens and no digest", receipt.completion.tokens.size()),
                 .expected = "a run of one token or more, or one of 'nibble run --digest-prompt'"};
  }
  NIBBLE_TRY(check_model(receipt, flags));
  engine::LoadOptions options = flags.model.load_options();
  options.contract = receipt.contract;
  options.lane = receipt.lane;
  NIBBLE_ASSIGN(const auto loaded, engine::load(flags.model.model, options));
  NIBBLE_TRY(check_same("tokenizer", "tokenizer_sha256", receipt.tokenizer_sha256, loaded->tokenizer.digest(), flags));
  if (!receipt.chat_template_sha256.empty()) {
    NIBBLE_TRY(check_same("chat template", "chat_template_sha256", receipt.chat_template_sha256,
                          loaded->chat_template_sha256, flags));
  }
  engine::SessionOptions session_options = flags.model.session_options();
  if (session_options.n_ctx == 0) session_options.n_ctx = receipt.n_ctx;
  NIBBLE_ASSIGN(const auto session, engine::Session::create(*loaded->model, session_options));
  NIBBLE_TRY(check_prompt(receipt, *session, loaded->model->config.vocab_size, flags.receipt));
  engine::GenerateRequest request = receipt.request;
  // A run that its reader cut short is repeated as far as it went.
  if (receipt.completion.finish == engine::FinishReason::kCancelled) {
    request.max_tokens = static_cast<int>(receipt.completion.tokens.size());
  }
  NIBBLE_ASSIGN(const engine::Completion here, engine::generate(*session, loaded->tokenizer, request));

  if (receipt.contract == contract_name(Contract::kNative) || receipt.contract == contract_name(Contract::kNativeFp4)) {
    say_note(fmt::format("contract {} promises no bits, on this device or another; a difference is no fault",
                         receipt.contract));
  }
  const std::string machine = loaded->model->backend->description();
  const auto difference = engine::first_difference(receipt.completion, here);
  if (difference) {
    write_out(fmt::format("different: {}\n", difference->description));
    say("recorded {}\nhere     {}  ({})\n", receipt.completion.logits_digest, here.logits_digest, machine);
    return 1;
  }
  write_out(fmt::format("identical: {} tokens, logits {}\n", here.tokens.size(), here.logits_digest));
  say("machine   {}\n", machine);
  return 0;
}

}  // namespace

Command add_replay(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("replay", "Runs a receipt again; identical, or the first position that differs");
  auto flags = std::make_shared<ReplayFlags>();
  add_path(*command, "RECEIPT", flags->receipt, "A file that nibble run --receipt wrote")->required();
  add_path(*command, "--model", flags->model.model, "The model file of the receipt")->required();
  flags->model.add_machine(*command);
  flags->model.add_cache(*command, "Positions of the cache; 0: as in the receipt");
  return [flags] { return replay(*flags); };
}

}  // namespace nibble::apps
