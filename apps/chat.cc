// nibble chat: a conversation on the terminal through the model's own chat template.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "apps/commands.h"
#include "apps/console.h"
#include "apps/generation_flags.h"
#include "apps/interrupt.h"
#include "apps/model_flags.h"
#include "apps/usage.h"

namespace nibble::apps {
namespace {

struct ChatFlags {
  ModelFlags model;
  GenerationFlags generation;
  std::string system;
  bool verbose = false;
};

// Reads one line of the user; false at the end of the input, and when Ctrl-C is pressed at the prompt.
bool read_line(bool terminal, std::string& line) {
  clear_interrupt();
  if (terminal) say("> ");
  char* text = nullptr;  // getline's, which unlike std::getline comes back from an interrupted read
  std::size_t room = 0;
  const ssize_t length = ::getline(&text, &room, stdin);
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  if (length < 0 || interrupted()) {
    if (terminal) say("\n");
    return false;
  }
  line.assign(text, static_cast<std::size_t>(length));
  if (line.ends_with('\n')) line.pop_back();
  return true;
}

// One answer; the conversation grows by it. Ctrl-C ends the answer, not the program.
Status answer(const ChatFlags& flags, engine::LoadedModel& loaded, engine::Session& session,
              nlohmann::ordered_json& messages) {
  NIBBLE_ASSIGN(auto prompt, engine::encode_conversation(loaded, messages));
  const engine::GenerateRequest request = flags.generation.request(std::move(prompt));
  clear_interrupt();
  const auto keep_going = [] { return !interrupted(); };
  NIBBLE_ASSIGN(const engine::Completion completion,
                engine::generate(session, loaded.tokenizer, request, write_out, keep_going));
  write_out("\n");
  if (flags.verbose) {
    say("[{} of {} prompt tokens were cached; {} tokens, {:.1f} tokens/s; logits {}]\n", completion.reused_positions,
        request.prompt.size(), completion.tokens.size(),
        completion.decode_seconds > 0 ? static_cast<double>(completion.tokens.size()) / completion.decode_seconds : 0.0,
        completion.logits_digest);
  }
  if (completion.finish == engine::FinishReason::kContextFull) {
    say("[the context of {} positions is full]\n", session.n_ctx());
  }
  messages.push_back({{"role", "assistant"}, {"content", completion.text}});
  return ok_status();
}

Result<int> chat(const ChatFlags& flags, const CLI::App& command) {
  NIBBLE_ASSIGN(const auto loaded, engine::load(flags.model.model, flags.model.load_options()));
  NIBBLE_ASSIGN(const auto session, engine::Session::create(*loaded->model, flags.model.session_options()));
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  const auto restart = [&] {
    messages.clear();
    if (!flags.system.empty()) messages.push_back({{"role", "system"}, {"content", flags.system}});
  };
  restart();
  const bool terminal = isatty(STDIN_FILENO) == 1;
  if (terminal)
    say("{} ready. /reset starts over, /quit or Ctrl-D ends, Ctrl-C stops an answer or, between answers, ends.\n",
        loaded->model->backend->description());
  catch_interrupts({SIGINT}, 0);  // without SA_RESTART: Ctrl-C also ends a read that waits for the user
  for (std::string line; read_line(terminal, line);) {
    if (line.empty()) continue;
    if (line == "/quit") break;
    if (line == "/reset") {
      restart();
      continue;
    }
    messages.push_back({{"role", "user"}, {"content", line}});
    const Status status = answer(flags, *loaded, *session, messages);
    if (!status.ok()) {
      if (!terminal) return status.error();
      fail(command, status.error());  // a person may go on: the message that failed is taken back
      messages.erase(messages.size() - 1);
    }
  }
  return 0;
}

}  // namespace

Command add_chat(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("chat", "A conversation through the model's own chat template; one message a line");
  auto flags = std::make_shared<ChatFlags>();
  flags->model.add_model(*command);
  add_text(*command, "--system", flags->system, "A system message before the conversation");
  flags->generation.add(*command);
  command->add_flag("-v,--verbose", flags->verbose,
                    "Speed, cached tokens and the digest of the logits after each answer");
  flags->model.add_machine(*command);
  flags->model.add_session(*command);
  return [flags, command]() -> Result<int> {
    if (auto fault = flags->generation.fault()) return wrong_usage(*command, std::move(*fault));
    return chat(*flags, *command);
  };
}

}  // namespace nibble::apps
