// nibble run: one completion, streamed to stdout; speed and the digest of the logits on stderr.
#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/console.h"
#include "apps/generation_flags.h"
#include "apps/interrupt.h"
#include "apps/model_flags.h"
#include "apps/output_path.h"
#include "apps/usage.h"
#include "base/utf8.h"
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

Result<std::string> read_text(const std::string& path) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::error_code ec;
  if (std::filesystem::is_directory(path, ec)) {
    return Error{.message = "the prompt file is a directory", .file = path};
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error{.message = "cannot open the prompt file", .file = path};
  return std::string(std::istreambuf_iterator<char>(in), {});
}

Result<std::string> read_prompt(const RunFlags& flags) {
  if (flags.prompt_file.empty()) return flags.prompt;
  NIBBLE_ASSIGN(std::string text, read_text(flags.prompt_file));
  Status status = check_utf8(text, "the prompt");
  if (status.ok()) return text;
  Error error = std::move(status).error();
  error.file = flags.prompt_file;
  return error;
}

Result<std::vector<std::int32_t>> encode_prompt(const RunFlags& flags, const std::string& prompt,
                                                const engine::LoadedModel& loaded) {
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
  NIBBLE_TRY(check_output(flags.receipt, {flags.model.model, flags.prompt_file}));
  NIBBLE_ASSIGN(const std::string prompt, read_prompt(flags));
  NIBBLE_ASSIGN(const auto loaded, engine::load(flags.model.model, flags.model.load_options()));
  NIBBLE_ASSIGN(auto tokens, encode_prompt(flags, prompt, *loaded));
  engine::GenerateRequest request = flags.generation.request(std::move(tokens));
  request.digest_prompt = flags.digest_prompt;
  NIBBLE_ASSIGN(const auto session, engine::Session::create(*loaded->model, flags.model.session_options()));

  // The first Ctrl-C ends the answer, so that what was made is summed up and recorded; a second ends the program.
  catch_interrupts({SIGINT, SIGTERM}, SA_RESTART | static_cast<int>(SA_RESETHAND));
  const auto show = [&flags](std::string_view text) { return flags.json || write_out(text); };
  const auto keep_going = [] { return !interrupted(); };
  NIBBLE_ASSIGN(engine::Completion completion,
                engine::generate(*session, loaded->tokenizer, request, show, keep_going));
  if (interrupted() && completion.tokens.empty()) {
    say("stopped at position {} of a prompt of {} tokens; there is no answer to record\n", session->tokens().size(),
        request.prompt.size());
    return status_of_signal();
  }
  if (!flags.json) write_out("\n");
  print_summary(completion, request, *loaded);
  const int status = interrupted() ? status_of_signal() : 0;
  if (flags.receipt.empty() && !flags.json) return status;

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
  return status;
}

}  // namespace

Command add_run(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "One completion, streamed; speed and a digest of the logits on stderr");
  auto flags = std::make_shared<RunFlags>();
  flags->model.add_model(*command);
  auto* prompt = add_text(*command, "-p,--prompt", flags->prompt, "The prompt");
  auto* file = add_path(*command, "-f,--file", flags->prompt_file, "Read the prompt from a file; - is stdin");
  prompt->excludes(file);
  auto* chat =
      command->add_flag("--chat", flags->chat, "The prompt is a user's message: put it into the model's chat template");
  add_text(*command, "--system", flags->system, "A system message before it")->needs(chat);
  command->add_flag("--raw", flags->raw, "Special tokens in the prompt's text are tokens, and no BOS is added")
      ->excludes(chat);
  flags->generation.add(*command);
  add_path(*command, "--receipt", flags->receipt, "Write what was run and its digests as JSON, for nibble replay");
  command->add_flag("--digest-prompt", flags->digest_prompt,
                    "Compute and digest the logits of every prompt position too");
  command->add_flag("--json", flags->json, "Print the receipt on stdout instead of the text");
  flags->model.add_machine(*command);
  flags->model.add_session(*command);
  return [flags, command]() -> Result<int> {
    if (command->count("-p") + command->count("-f") == 0) {
      return wrong_usage(*command, {.message = "nibble run needs a prompt",
                                    .found = "neither -p nor -f",
                                    .expected = "-p TEXT or -f FILE (- is stdin)"});
    }
    if (auto fault = flags->generation.fault()) return wrong_usage(*command, std::move(*fault));
    return run(*flags);
  };
}

}  // namespace nibble::apps
