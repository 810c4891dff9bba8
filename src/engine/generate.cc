#include "engine/generate.h"

#include <chrono>

#include "engine/logits_digest.h"
#include "engine/stop_strings.h"

namespace nibble::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Text on its way from tokens to the caller; remembers whether it has to end.
class TextStream {
 public:
  TextStream(const text::Tokenizer& tokenizer, const GenerateRequest& request, const TextCallback& on_text,
             std::string& text)
      : decoder_(tokenizer), stops_(request.stops), on_text_(on_text), text_(text) {}

  void push(std::int32_t token) { emit(stops_.push(decoder_.push(token))); }
  void finish() {
    if (!stops_.stopped()) emit(stops_.push(decoder_.flush()));
    if (!stops_.stopped()) emit(stops_.flush());
  }
  bool stopped() const { return stops_.stopped(); }
  bool cancelled() const { return cancelled_; }

 private:
  void emit(const std::string& piece) {
    if (piece.empty()) return;
    text_ += piece;  // also what is left when the reader has gone: the text is that of the tokens, as a replay makes it
    if (!cancelled_ && on_text_ && !on_text_(piece)) cancelled_ = true;
  }

  text::StreamDecoder decoder_;
  StopStrings stops_;
  const TextCallback& on_text_;
  std::string& text_;
  bool cancelled_ = false;
};

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStopToken:
      return "stop_token";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kMaxTokens:
      return "max_tokens";
    case FinishReason::kContextFull:
      return "context_full";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

Result<Completion> generate(Session& session, const text::Tokenizer& tokenizer, const GenerateRequest& request,
                            const TextCallback& on_text, const KeepGoing& keep_going) {
  NIBBLE_TRY(check_sampling_params(request.sampling, static_cast<int>(session.logits().size())));
  Completion out;
  LogitsDigest digest;
  Sampler sampler(request.sampling);

  const Clock::time_point prefill_start = Clock::now();
  Session::LogitsCallback on_logits;
  if (request.digest_prompt) on_logits = [&](std::int64_t, std::span<const float> logits) { digest.add(logits); };
  NIBBLE_TRY(session.prefill(request.prompt, on_logits, keep_going));
  out.reused_positions = session.reused_positions();
  out.first_digest_position =
      request.digest_prompt ? out.reused_positions : static_cast<std::int64_t>(request.prompt.size()) - 1;
  out.prefill_seconds = seconds_since(prefill_start);
  if (session.tokens().size() < request.prompt.size()) {
    out.finish = FinishReason::kCancelled;
    return out;
  }

  const Clock::time_point decode_start = Clock::now();
  TextStream stream(tokenizer, request, on_text, out.text);
  out.finish = FinishReason::kMaxTokens;
  bool digested = request.digest_prompt;  // of the logits that the next token is drawn from
  while (static_cast<int>(out.tokens.size()) < request.max_tokens) {
    if (!digested) digest.add(session.logits());
    digested = false;
    const auto position = static_cast<std::int64_t>(session.tokens().size());
    const std::int32_t token = sampler.sample(session.logits(), session.tokens(), position);
    out.tokens.push_back(token);
    out.token_logits.push_back(session.logits()[token]);
    if (tokenizer.is_eog(token) && !request.ignore_eos) {
      out.finish = FinishReason::kStopToken;
      break;
    }
    stream.push(token);
    if (stream.stopped() || stream.cancelled()) {
      out.finish = stream.stopped() ? FinishReason::kStopString : FinishReason::kCancelled;
      break;
    }
    if (static_cast<int>(out.tokens.size()) == request.max_tokens) break;
    if (position >= session.n_ctx()) {
      out.finish = FinishReason::kContextFull;
      break;
    }
    if (keep_going && !keep_going()) {
      out.finish = FinishReason::kCancelled;
      break;
    }
    NIBBLE_TRY(session.decode(token));
  }
  stream.finish();
  if (stream.stopped()) out.finish = FinishReason::kStopString;
  out.decode_seconds = seconds_since(decode_start);
  out.position_digests = digest.positions();
  out.logits_digest = digest.whole();
  return out;
}

}  // namespace nibble::engine
