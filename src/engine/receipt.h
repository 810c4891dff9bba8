// What a run was and what came out of it, as JSON that a third party can replay on another kind of machine.
// Interface keys: contract, model_sha256, prompt_tokens, tokens, logits_digest, position_digests.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/generate.h"

namespace nibble::engine {

struct Receipt {
  std::string contract;
  std::string lane;  // of the file; empty in receipts of versions that had one lane
  std::string model_sha256;
  std::string model_file;  // base name, for people
  std::string tokenizer_sha256;
  std::string chat_template_sha256;  // empty: no template was used
  int n_ctx = 0;                     // positions of the cache: a full one ends a run
  GenerateRequest request;
  Completion completion;
  // Facts about the machine that ran it: informative, a replay does not compare them.
  std::string backend;  // "cpu avx512, 2 threads"
  int prefill_chunk = 0;
};

// A float in a receipt: its bits, eight hexadecimal digits, because a JSON number would have to be trusted to
// round-trip.
std::string bits_hex(float x);

nlohmann::ordered_json to_json(const Receipt& receipt);
// Every value is checked for its type and range; an Error names the key.
Result<Receipt> receipt_from_json(const std::string& text, const std::string& file);

Status write_receipt(const Receipt& receipt, const std::string& path);
Result<Receipt> read_receipt(const std::string& path);

// The first place where a replay differs from its receipt.
struct Difference {
  std::int64_t position = 0;  // absolute position of the logits that differ
  std::string description;    // one line: which position, token and logit
};
// nullopt: identical, tokens and logits.
std::optional<Difference> first_difference(const Completion& recorded, const Completion& replayed);

}  // namespace nibble::engine
