// One completion: prefill, then sample and decode until a stop. The only generation loop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "text/tokenizer.h"

namespace nibble::engine {

struct GenerateRequest {
  std::vector<std::int32_t> prompt;  // token ids
  int max_tokens = 256;              // also ends at the end of the context
  SamplingParams sampling;
  std::vector<std::string> stops;  // text that ends the completion and is not part of it
  bool ignore_eos = false;         // go on after an end-of-generation token
  bool digest_prompt = false;      // logits of every prompt position enter the digest, not only of the last
};

enum class FinishReason { kStopToken, kStopString, kMaxTokens, kContextFull, kCancelled };
std::string_view finish_reason_name(FinishReason reason);

struct Completion {
  std::vector<std::int32_t> tokens;  // sampled, an end-of-generation token included
  std::vector<float> token_logits;   // [tokens], before penalties
  std::string text;
  FinishReason finish = FinishReason::kMaxTokens;
  std::int64_t first_digest_position = 0;  // absolute position of position_digests[0]
  std::vector<std::string> position_digests;
  std::string logits_digest;
  int reused_positions = 0;  // of the prompt, found in the cache
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

// Called with each piece of text that is complete and cannot become a stop string; false cancels.
using TextCallback = std::function<bool(std::string_view)>;

// `keep_going` is asked before each step of prefill and decode; false cancels. A prompt that was not read to its end
// makes a completion without tokens.
Result<Completion> generate(Session& session, const text::Tokenizer& tokenizer, const GenerateRequest& request,
                            const TextCallback& on_text = {}, const KeepGoing& keep_going = {});

}  // namespace nibble::engine
