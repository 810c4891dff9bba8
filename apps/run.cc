// nibble run: one completion, streamed to stdout; speed and the digest of the logits on stderr.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/console.h"
#include "apps/generation_flags.h"
#include "apps/model_flags.h"
#include "engine/receipt.h"

namespace nibble::apps {
namespace {

struct RunFlags {
  ModelFlags model;
  GenerationFlags generation;
  std::string prompt;
  std::string prompt_file;
  std::string system;
  std::string receipt;
  bool chat = false;
  bool raw = false;
  bool digest_prompt = false;
  bool json = false;
};

Result<std::string> read_prompt(const RunFlags& flags) {
  if (flags.prompt_file.empty()) return flags.prompt;
  if (flags.prompt_file == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::error_code ec;
  if (std::filesystem::is_directory(flags.prompt_file, ec)) {
    return Error{.message = "the prompt file is a directory", .file = flags.prompt_file};
  }
  std::ifstream in(flags.prompt_file, std::ios::binary);
  if (!in) return Error{.message = "cannot open the prompt file", .file = flags.prompt_file};
  return std::string(std::istreambuf_iterator<char>(in), {});
}

Result<std::vector<std::int32_t>> encode_prompt(const RunFlags& flags, const engine::LoadedModel& loaded) {
  NIBBLE_ASSIGN(const std::string prompt, read_prompt(flags));
  if (!flags.chat) return loaded.tokenizer.encode(prompt, {.parse_special = flags.raw, .add_special = !flags.raw});
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (!flags.system.empty()) messages.push_back({{"role", "system"}, {"content", flags.system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  return engine::encode_conversation(loaded, messages);
}

void print_summary(const engine::Completion& c, const engine::GenerateRequest& request,
                   const engine::LoadedModel& loaded) {
  const auto rate = [](double n, double seconds) { return seconds > 0 ? n / seconds : 0.0; };
  const double n_prefill = static_cast<double>(request.prompt.size()) - c.reused_positions;
  const double n_decode = c.tokens.empty() ? 0 : static_cast<double>(c.tokens.size() - 1);  // the first is prefill's
  say("\nprompt    {:6} tokens  {:8.1f} tokens/s\ngenerated {:6} tokens  {:8.1f} tokens/s   ({})\n",
      request.prompt.size(), rate(n_prefill, c.prefill_seconds), c.tokens.size(), rate(n_decode, c.decode_seconds),
      engine::finish_reason_name(c.finish));
  say("machine   {}\ncontract  {}, lane {}\nlogits    {}\n", loaded.model->backend->description(), loaded.contract,
      loaded.lane(), c.logits_digest);
}

Result<int> run(const RunFlags& flags) {
  NIBBLE_ASSIGN(const auto loaded, engine::load(flags.model.model, flags.model.load_options()));
  NIBBLE_ASSIGN(auto prompt, encode_prompt(flags, *loaded));
  NIBBLE_ASSIGN(auto request, flags.generation.request(std::move(prompt)));
  request.digest_prompt = flags.digest_prompt;
  NIBBLE_ASSIGN(const auto session, engine::Session::create(*loaded->model, flags.model.session_options()));

  const auto show = [&flags](std::string_view text) { return flags.json || write_out(text); };
  NIBBLE_ASSIGN(engine::Completion completion, engine::generate(*session, loaded->tokenizer, request, show));
  if (!flags.json) write_out("\n");
  print_summary(completion, request, *loaded);
  if (flags.receipt.empty() && !flags.json) return 0;

  engine::Receipt receipt;
  receipt.contract = loaded->contract;
  receipt.lane = loaded->lane();
  NIBBLE_ASSIGN(receipt.model_sha256, engine::model_sha256(loaded->file()));
  receipt.model_file = std::filesystem::path(flags.model.model).filename().string();
  receipt.tokenizer_sha256 = loaded->tokenizer.digest();
  if (flags.chat) receipt.chat_template_sha256 = loaded->chat_template_sha256;
  receipt.request = std::move(request);
  receipt.completion = std::move(completion);
  receipt.backend = loaded->model->backend->description();
  receipt.prefill_chunk = flags.model.prefill_chunk;
  receipt.n_ctx = session->n_ctx();
  if (flags.json)
    write_out(engine::to_json(receipt).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  if (!flags.receipt.empty()) {
    NIBBLE_TRY(engine::write_receipt(receipt, flags.receipt));
    say("receipt   {}\n", flags.receipt);
  }
  return 0;
}

}  // namespace

Command add_run(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "One completion, streamed; speed and a digest of the logits on stderr");
  auto flags = std::make_shared<RunFlags>();
  flags->model.add_model(*command);
  auto* prompt = command->add_option("-p,--prompt", flags->prompt, "The prompt");
  auto* file = command->add_option("-f,--file", flags->prompt_file, "Read the prompt from a file; - is stdin");
  prompt->excludes(file);
  auto* chat =
      command->add_flag("--chat", flags->chat, "The prompt is a user's message: put it into the model's chat template");
  command->add_option("--system", flags->system, "A system message before it")->needs(chat);
  command->add_flag("--raw", flags->raw, "Special tokens in the prompt's text are tokens, and no BOS is added")
      ->excludes(chat);
  flags->generation.add(*command);
  command->add_option("--receipt", flags->receipt, "Write what was run and its digests as JSON, for nibble replay");
  command->add_flag("--digest-prompt", flags->digest_prompt,
                    "Compute and digest the logits of every prompt position too");
  command->add_flag("--json", flags->json, "Print the receipt on stdout instead of the text");
  flags->model.add_machine(*command);
  flags->model.add_session(*command);
  return [flags, command] {
    if (command->count("-p") + command->count("-f") == 0) {
      return say("nibble run needs a prompt: -p TEXT or -f FILE (- is stdin)\n"), 2;
    }
    const Result<int> status = run(*flags);
    return status.ok() ? *status : fail(status.error());
  };
}

}  // namespace nibble::apps
