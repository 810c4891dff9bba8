#include "engine/vocabulary_from_gguf.h"

#include <string>
#include <utility>

namespace nibble::engine {
namespace {

std::string key(std::string_view name) {
  return "tokenizer.ggml." + std::string(name);
}

Result<std::vector<std::string>> strings_or_none(const GgufFile& file, std::string_view name) {
  NIBBLE_ASSIGN(const auto views, file.find_strings(key(name)));
  return views ? std::vector<std::string>(views->begin(), views->end()) : std::vector<std::string>{};
}

Result<std::optional<std::int64_t>> id_or_none(const GgufFile& file, std::string_view name) {
  NIBBLE_ASSIGN(const auto value, file.find_uint(key(name)));
  return value ? std::optional<std::int64_t>(static_cast<std::int64_t>(*value)) : std::nullopt;
}

}  // namespace

Result<text::Vocabulary> vocabulary_from_gguf(const GgufFile& file) {
  text::Vocabulary v;
  NIBBLE_ASSIGN(v.model, file.require_string(key("model")));
  NIBBLE_ASSIGN(const auto pre, file.find_string(key("pre")));
  v.pre = pre.value_or("");
  NIBBLE_ASSIGN(v.tokens, strings_or_none(file, "tokens"));
  NIBBLE_ASSIGN(const auto scores, file.find_floats(key("scores")));
  if (scores) v.scores.assign(scores->begin(), scores->end());
  NIBBLE_ASSIGN(const auto types, file.find_ints(key("token_type")));
  if (types) v.token_types.assign(types->begin(), types->end());
  NIBBLE_ASSIGN(v.merges, strings_or_none(file, "merges"));
  NIBBLE_ASSIGN(v.bos_id, id_or_none(file, "bos_token_id"));
  NIBBLE_ASSIGN(v.eos_id, id_or_none(file, "eos_token_id"));
  NIBBLE_ASSIGN(v.unk_id, id_or_none(file, "unknown_token_id"));
  NIBBLE_ASSIGN(v.pad_id, id_or_none(file, "padding_token_id"));
  NIBBLE_ASSIGN(v.eot_id, id_or_none(file, "eot_token_id"));
  NIBBLE_ASSIGN(v.eom_id, id_or_none(file, "eom_token_id"));
  NIBBLE_ASSIGN(v.add_bos, file.find_bool(key("add_bos_token")));
  NIBBLE_ASSIGN(v.add_eos, file.find_bool(key("add_eos_token")));
  NIBBLE_ASSIGN(v.add_space_prefix, file.find_bool(key("add_space_prefix")));
  return v;
}

}  // namespace nibble::engine
