#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "base/printable.h"
#include "engine/receipt.h"
#include "io/lane.h"
#include "io/nvfp4_container.h"

namespace nibble::engine {
namespace {

using Json = nlohmann::ordered_json;

// The whole of `text` as a number.
template <typename T>
std::optional<T> parse_whole(std::string_view text, int base = 10) {
  T value{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// An object of a receipt. What nlohmann's own conversions let pass (fractions and overflow of integers, NaN) is
// refused.
class Object {
 public:
  Object(const Json& json, std::string prefix, const std::string& file)
      : json_(json), prefix_(std::move(prefix)), file_(file) {}

  Error refuse(std::string_view key, const Json& found, std::string expected) const {
    return Error{.message = "not a receipt of nibble",
                 .file = file_,
                 .key = prefix_ + std::string(key),
                 .found = printable(found.dump(-1, ' ', true, Json::error_handler_t::replace), 60),
                 .expected = std::move(expected)};
  }

  bool has(std::string_view key) const { return json_.is_object() && json_.contains(key); }

  Result<const Json*> value(std::string_view key) const {
    const auto at = json_.is_object() ? json_.find(key) : json_.end();
    if (at != json_.end()) return &*at;
    return Error{.message = "not a receipt of nibble",
                 .file = file_,
                 .key = prefix_ + std::string(key),
                 .found = "no such key",
                 .expected = "JSON as 'nibble run --receipt FILE' writes it"};
  }

  Result<Object> object(std::string_view key) const {
    NIBBLE_ASSIGN(const Json* json, value(key));
    if (!json->is_object()) return refuse(key, *json, "an object");
    return Object(*json, prefix_ + std::string(key) + ".", file_);
  }

  Result<std::string> string(std::string_view key) const {
    NIBBLE_ASSIGN(const Json* json, value(key));
    return as_string(key, *json);
  }

  Result<bool> flag(std::string_view key) const {
    NIBBLE_ASSIGN(const Json* json, value(key));
    if (!json->is_boolean()) return refuse(key, *json, "true or false");
    return json->get<bool>();
  }

  template <typename T>
  Result<T> whole(std::string_view key, T least = 0) const {
    NIBBLE_ASSIGN(const Json* json, value(key));
    return as_whole<T>(key, *json, least);
  }

  Result<float> number(std::string_view key) const {
    NIBBLE_ASSIGN(const Json* json, value(key));
    return as_number(key, *json);
  }

  // The elements of an array, each through `as`, a function of (key, element) that returns a Result<T>.
  template <typename T, typename As>
  Result<std::vector<T>> array(std::string_view key, As as) const {
    NIBBLE_ASSIGN(const Json* json, value(key));
    if (!json->is_array()) return refuse(key, *json, "an array");
    std::vector<T> out;
    out.reserve(json->size());
    for (std::size_t i = 0; i < json->size(); ++i) {
      NIBBLE_ASSIGN(T element, as(fmt::format("{}[{}]", key, i), (*json)[i]));
      out.push_back(std::move(element));
    }
    return out;
  }

  Result<std::vector<std::string>> strings(std::string_view key) const {
    return array<std::string>(key, [this](const std::string& at, const Json& json) { return as_string(at, json); });
  }
  Result<std::vector<std::int32_t>> token_ids(std::string_view key) const {
    return array<std::int32_t>(
        key, [this](const std::string& at, const Json& json) { return as_whole<std::int32_t>(at, json, 0); });
  }
  Result<std::vector<float>> floats_of_bits(std::string_view key) const {
    return array<float>(key, [this](const std::string& at, const Json& json) { return as_bits(at, json); });
  }

  // An unknown key would be a setting that the replay does not follow.
  Status has_only(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, entry] : json_.items()) {
      if (std::ranges::find(known, key) == known.end()) {
        return refuse(key, entry, fmt::format("one of: {}", fmt::join(known, ", ")));
      }
    }
    return ok_status();
  }

  Result<std::map<std::int32_t, float>> logit_bias(std::string_view key) const {
    NIBBLE_ASSIGN(const Object biases, object(key));
    std::map<std::int32_t, float> out;
    for (const auto& [token, bias] : biases.json_.items()) {
      const auto id = parse_whole<std::int32_t>(token);
      if (!id || *id < 0) return refuse(key, token, "token ids as keys");
      NIBBLE_ASSIGN(out[*id], biases.number(token));
    }
    return out;
  }

 private:
  Result<std::string> as_string(std::string_view key, const Json& json) const {
    if (!json.is_string()) return refuse(key, json, "a string");
    return json.get<std::string>();
  }

  template <typename T>
  Result<T> as_whole(std::string_view key, const Json& json, T least) const {
    constexpr T kMost = std::numeric_limits<T>::max();
    const std::string expected = fmt::format("a whole number from {} to {}", least, kMost);
    if (!json.is_number_integer()) return refuse(key, json, expected);
    if (json.is_number_unsigned()) {
      const auto value = json.get<std::uint64_t>();
      if (value > static_cast<std::uint64_t>(kMost)) return refuse(key, json, expected);
      if (least > 0 && value < static_cast<std::uint64_t>(least)) return refuse(key, json, expected);
      return static_cast<T>(value);
    }
    const auto value = json.get<std::int64_t>();  // negative
    if (std::is_unsigned_v<T> || value < static_cast<std::int64_t>(least)) return refuse(key, json, expected);
    return static_cast<T>(value);
  }

  Result<float> as_number(std::string_view key, const Json& json) const {
    const float value = json.is_number() ? json.get<float>() : NAN;
    if (!std::isfinite(value)) return refuse(key, json, "a number that a float can hold");
    return value;
  }

  Result<float> as_bits(std::string_view key, const Json& json) const {
    const auto* text = json.get_ptr<const std::string*>();
    const auto bits = text != nullptr && text->size() == 8 ? parse_whole<std::uint32_t>(*text, 16) : std::nullopt;
    if (!bits) return refuse(key, json, "the bits of a float: eight hexadecimal digits");
    return std::bit_cast<float>(*bits);
  }

  const Json& json_;
  std::string prefix_;  // of keys in messages: "sampling."
  const std::string& file_;
};

Result<SamplingParams> parse_sampling(const Object& o) {
  SamplingParams p;
  NIBBLE_ASSIGN(p.temperature, o.number("temperature"));
  NIBBLE_ASSIGN(p.top_k, o.whole<int>("top_k"));
  NIBBLE_ASSIGN(p.top_p, o.number("top_p"));
  NIBBLE_ASSIGN(p.min_p, o.number("min_p"));
  NIBBLE_ASSIGN(p.repetition_penalty, o.number("repetition_penalty"));
  NIBBLE_ASSIGN(p.presence_penalty, o.number("presence_penalty"));
  NIBBLE_ASSIGN(p.penalty_window, o.whole<int>("penalty_window", -1));
  NIBBLE_ASSIGN(p.logit_bias, o.logit_bias("logit_bias"));
  NIBBLE_ASSIGN(p.seed, o.whole<std::uint64_t>("seed"));
  NIBBLE_ASSIGN(p.request, o.whole<std::uint64_t>("request"));
  NIBBLE_TRY(o.has_only({"temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
                         "penalty_window", "logit_bias", "seed", "request"}));
  Status status = check_sampling_params(p);
  if (status.ok()) return p;
  return o.refuse(status.error().key, Json(status.error().found), status.error().expected);
}

Result<FinishReason> parse_finish(const Object& o, std::string_view key) {
  NIBBLE_ASSIGN(const std::string name, o.string(key));
  std::string names;
  for (int i = 0; i <= static_cast<int>(FinishReason::kCancelled); ++i) {
    const std::string_view known = finish_reason_name(static_cast<FinishReason>(i));
    if (known == name) return static_cast<FinishReason>(i);
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  return o.refuse(key, Json(name), "one of: " + names);
}

Result<std::string> parse_lane(const Object& o, std::string_view key) {
  NIBBLE_ASSIGN(std::string name, o.string(key));
  std::string names;
  for (const Lane lane : {Lane::kNvfp4, Lane::kKquant, Lane::kMixed}) {
    if (lane_name(lane) == name) return name;
    names += (names.empty() ? "" : ", ") + std::string(lane_name(lane));
  }
  return o.refuse(key, Json(name), "one of: " + names);
}

Result<std::string> parse_contract(const Object& o, std::string_view key) {
  NIBBLE_ASSIGN(std::string name, o.string(key));
  std::string names;
  for (const Contract contract : kContracts) {
    if (contract_name(contract) == name) return name;
    names += (names.empty() ? "" : ", ") + std::string(contract_name(contract));
  }
  return o.refuse(key, Json(name), "one of: " + names);
}

Result<GenerateRequest> parse_request(const Object& o) {
  GenerateRequest request;
  NIBBLE_ASSIGN(request.prompt, o.token_ids("prompt_tokens"));
  if (request.prompt.empty()) return o.refuse("prompt_tokens", Json::array(), "at least one token id");
  NIBBLE_ASSIGN(request.max_tokens, o.whole<int>("max_tokens"));
  NIBBLE_ASSIGN(request.stops, o.strings("stop"));
  if (std::ranges::find(request.stops, "") != request.stops.end()) {
    return o.refuse("stop", Json(request.stops), "strings that are not empty");
  }
  NIBBLE_ASSIGN(request.ignore_eos, o.flag("ignore_eos"));
  NIBBLE_ASSIGN(request.digest_prompt, o.flag("digest_prompt"));
  NIBBLE_ASSIGN(const Object sampling, o.object("sampling"));
  NIBBLE_ASSIGN(request.sampling, parse_sampling(sampling));
  return request;
}

Result<Completion> parse_completion(const Object& o) {
  Completion c;
  NIBBLE_ASSIGN(c.tokens, o.token_ids("tokens"));
  NIBBLE_ASSIGN(c.token_logits, o.floats_of_bits("token_logits"));
  NIBBLE_ASSIGN(c.text, o.string("text"));
  NIBBLE_ASSIGN(c.finish, parse_finish(o, "finish_reason"));
  NIBBLE_ASSIGN(c.logits_digest, o.string("logits_digest"));
  NIBBLE_ASSIGN(c.first_digest_position, o.whole<std::int64_t>("first_digest_position"));
  NIBBLE_ASSIGN(c.position_digests, o.strings("position_digests"));
  if (c.token_logits.size() == c.tokens.size()) return c;
  return o.refuse("token_logits", Json(fmt::format("{} elements", c.token_logits.size())),
                  fmt::format("{}, one a token", c.tokens.size()));
}

Result<Receipt> parse_receipt(const Object& o) {
  constexpr int kVersion = 1;
  NIBBLE_ASSIGN(const int version, o.whole<int>("nibble_receipt"));
  if (version != kVersion) return o.refuse("nibble_receipt", Json(version), fmt::format("{}", kVersion));
  Receipt r;
  NIBBLE_ASSIGN(r.contract, parse_contract(o, "contract"));
  if (o.has("lane")) {
    NIBBLE_ASSIGN(r.lane, parse_lane(o, "lane"));
  }
  NIBBLE_ASSIGN(r.model_sha256, o.string("model_sha256"));
  NIBBLE_ASSIGN(r.model_file, o.string("model_file"));
  NIBBLE_ASSIGN(r.tokenizer_sha256, o.string("tokenizer_sha256"));
  NIBBLE_ASSIGN(r.chat_template_sha256, o.string("chat_template_sha256"));
  NIBBLE_ASSIGN(r.n_ctx, o.whole<int>("n_ctx", 1));
  NIBBLE_ASSIGN(r.request, parse_request(o));
  NIBBLE_ASSIGN(r.completion, parse_completion(o));
  NIBBLE_TRY(o.has_only({"nibble_receipt",
                         "contract",
                         "lane",
                         "model_sha256",
                         "model_file",
                         "tokenizer_sha256",
                         "chat_template_sha256",
                         "prompt_tokens",
                         "n_ctx",
                         "max_tokens",
                         "stop",
                         "ignore_eos",
                         "digest_prompt",
                         "sampling",
                         "tokens",
                         "token_logits",
                         "text",
                         "finish_reason",
                         "logits_digest",
                         "first_digest_position",
                         "position_digests",
                         "build",
                         "machine"}));  // all that to_json writes
  return r;
}

// The text as JSON, discarded where it is none. `repeated` becomes the first key that stands twice in one object,
// because readers differ in which of the two they take.
Json parse_once(const std::string& text, std::string& repeated) {
  std::vector<std::set<std::string>> open;  // keys of the objects around the place that is read
  const auto see = [&open, &repeated](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event != Json::parse_event_t::key) return true;
    auto key = parsed.get<std::string>();
    if (repeated.empty() && open.back().contains(key)) repeated = key;
    open.back().insert(std::move(key));
    return true;
  };
  return Json::parse(text, see, false);
}

}  // namespace

Result<Receipt> receipt_from_json(const std::string& text, const std::string& file) {
  std::string repeated;
  const Json json = parse_once(text, repeated);
  if (json.is_discarded()) {
    return Error{.message = "not a receipt of nibble",
                 .file = file,
                 .found = text.empty() ? "an empty file" : "text that is not JSON",
                 .expected = "JSON as 'nibble run --receipt FILE' writes it"};
  }
  if (!repeated.empty()) {
    return Error{.message = "not a receipt of nibble",
                 .file = file,
                 .key = printable(repeated),
                 .found = "the key twice in one object",
                 .expected = "each key once"};
  }
  return parse_receipt(Object(json, "", file));
}

}  // namespace nibble::engine
