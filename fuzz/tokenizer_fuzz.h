// The property of the tokenizer's fuzz target, apart from its entry point so that a test can replay the corpus.
// The first byte of an input chooses the vocabulary:
//   'a' to 'f'  a fixed byte-level one, under each pre-tokenizer rule; the rest is the text
//   's', 'S'    a fixed SentencePiece one, without and with the space prefix; the rest is the text
//   'v'         the vocabulary itself comes from the input, see vocabulary_from()
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "tests/text/small_vocabulary.h"
#include "text/tokenizer.h"

namespace nibble::text::fuzz {

inline Tokenizer fixed_tokenizer(char choice) {
  Vocabulary vocabulary = choice == 's' || choice == 'S' ? small_spm() : small_bpe();
  constexpr std::string_view kRules[] = {"gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "default"};
  if (vocabulary.model == "gpt2") vocabulary.pre = kRules[choice - 'a'];
  vocabulary.add_space_prefix = choice == 'S';
  auto tokenizer = Tokenizer::create(std::move(vocabulary));
  NIBBLE_CHECK(tokenizer.ok(), "a fixed vocabulary is refused");
  return std::move(tokenizer).value();
}

inline void check_ids(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  StreamDecoder decoder(tokenizer, {.render_control = true});
  std::string streamed;
  for (const std::int32_t id : ids) {
    NIBBLE_CHECK(tokenizer.contains(id), "an id out of range");
    const std::string part = decoder.push(id);
    NIBBLE_CHECK(find_invalid_utf8(part) == std::string_view::npos, "a part of a stream is not UTF-8");
    streamed += part;
  }
  streamed += decoder.flush();
  NIBBLE_CHECK(streamed == tokenizer.decode(ids, {.render_control = true}), "stream and whole decode differ");
}

// Text of the input through a vocabulary that can express everything: what is encoded comes back.
inline void check_round_trip(const Tokenizer& tokenizer, std::string_view text) {
  const bool valid = find_invalid_utf8(text) == std::string_view::npos;
  for (const bool parse_special : {false, true}) {
    const auto ids = tokenizer.encode(text, {.parse_special = parse_special, .add_special = false});
    NIBBLE_CHECK(ids.ok() == valid, "encode() must take exactly the valid UTF-8");
    if (!ids.ok()) return;
    check_ids(tokenizer, *ids);
    // SentencePiece writes a space as U+2581: that character itself comes back as a space.
    const bool lossy = tokenizer.find("<0x00>") && text.find("\xE2\x96\x81") != std::string_view::npos;
    NIBBLE_CHECK(lossy || tokenizer.decode(*ids, {.render_control = true}) == text, "decode(encode(text)) != text");
  }
}

// Lines: model, pre, then "t" + type digit + token, "m" + merge, "b" or "e" + id of BOS or EOS; the last line is text.
inline Vocabulary vocabulary_from(std::string_view input, std::string_view* text) {
  const auto next_line = [&] {
    const std::size_t end = std::min(input.find('\n'), input.size());
    const std::string_view line = input.substr(0, end);
    input.remove_prefix(std::min(end + 1, input.size()));
    return line;
  };
  Vocabulary v;
  v.model = next_line();
  v.pre = next_line();
  while (!input.empty()) {
    const std::string_view line = next_line();
    *text = line;
    if (line.size() < 2) continue;
    const std::int64_t digit = line[1] - '0';
    if (line[0] == 't') {
      v.token_types.push_back(static_cast<std::int32_t>(digit));
      v.tokens.emplace_back(line.substr(2));
      if (v.model == "llama") v.scores.push_back(-static_cast<float>(line.size()));
    }
    if (line[0] == 'm') v.merges.emplace_back(line.substr(1));
    if (line[0] == 'b') v.bos_id = digit;
    if (line[0] == 'e') v.eos_id = digit;
  }
  return v;
}

inline void check_vocabulary(std::string_view input) {
  std::string_view text;
  Vocabulary vocabulary = vocabulary_from(input, &text);
  for (int byte = 0; vocabulary.model == "gpt2+" && byte < 256; ++byte) {  // the bytes need not be spelt out
    vocabulary.tokens.push_back(character_of_byte(static_cast<std::uint8_t>(byte)));
    vocabulary.token_types.push_back(1);
  }
  if (vocabulary.model == "gpt2+") vocabulary.model = "gpt2";
  const auto tokenizer = Tokenizer::create(std::move(vocabulary));
  if (!tokenizer.ok()) return;
  for (const bool drop : {false, true}) {
    const auto ids = tokenizer->encode(text, {.parse_special = true, .drop_unencodable = drop});
    if (ids.ok()) check_ids(*tokenizer, *ids);
  }
  std::vector<std::int32_t> all;
  for (std::int32_t id = 0; id < tokenizer->vocab_size(); ++id) all.push_back(id);
  check_ids(*tokenizer, all);
}

inline void check_input(std::string_view input) {
  if (input.empty()) return;
  const char choice = input[0];
  input.remove_prefix(1);
  if (choice == 'v') return check_vocabulary(input);
  if (choice == 's' || choice == 'S') {
    static const Tokenizer kWithout = fixed_tokenizer('s'), kWith = fixed_tokenizer('S');
    return check_round_trip(choice == 's' ? kWithout : kWith, input);
  }
  if (choice < 'a' || choice > 'f') return;
  static const std::vector<Tokenizer> kByteLevel = [] {
    std::vector<Tokenizer> tokenizers;
    for (char rule = 'a'; rule <= 'f'; ++rule) tokenizers.push_back(fixed_tokenizer(rule));
    return tokenizers;
  }();
  check_round_trip(kByteLevel[static_cast<std::size_t>(choice - 'a')], input);
}

}  // namespace nibble::text::fuzz
