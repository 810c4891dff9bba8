// Encodes and decodes lines for a comparison with another tokenizer. The vocabulary is that of a GGUF file, or a JSON
// object (*.json) with the fields of text::Vocabulary. A line of stdin is a JSON string to encode or a JSON array of
// ids to decode; stdout gets
// {"ids": [...], "text": decoded} or {"error": message} for each. Times go to stderr. Driven by
// tests/text/tokenizer_reference.py.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/vocabulary_from_gguf.h"
#include "io/gguf.h"
#include "text/tokenizer.h"

namespace {

using nibble::text::Tokenizer;
using nibble::text::Vocabulary;
using nlohmann::json;

template <typename T>
void read(const json& object, const char* key, T* value) {
  if (object.contains(key)) object.at(key).get_to(*value);
}

template <typename T>
void read(const json& object, const char* key, std::optional<T>* value) {
  if (object.contains(key)) *value = object.at(key).get<T>();
}

nibble::Result<Vocabulary> read_vocabulary(const std::string& path) {
  if (!path.ends_with(".json")) {
    NIBBLE_ASSIGN(const auto gguf, nibble::GgufFile::open(path));
    return nibble::engine::vocabulary_from_gguf(gguf);
  }
  std::ifstream file(path);
  const json object = json::parse(file);
  Vocabulary v;
  read(object, "model", &v.model);
  read(object, "pre", &v.pre);
  read(object, "tokens", &v.tokens);
  read(object, "scores", &v.scores);
  read(object, "token_types", &v.token_types);
  read(object, "merges", &v.merges);
  read(object, "bos_id", &v.bos_id);
  read(object, "eos_id", &v.eos_id);
  read(object, "unk_id", &v.unk_id);
  read(object, "pad_id", &v.pad_id);
  read(object, "eot_id", &v.eot_id);
  read(object, "eom_id", &v.eom_id);
  read(object, "add_bos", &v.add_bos);
  read(object, "add_eos", &v.add_eos);
  read(object, "add_space_prefix", &v.add_space_prefix);
  return v;
}

// Processor time, which a busy machine does not stretch; everything here runs on one thread.
double seconds_since(std::clock_t start) {
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

int run(const Tokenizer& tokenizer, nibble::text::EncodeOptions options) {
  double encoding = 0, decoding = 0;
  std::size_t n_bytes = 0, n_ids = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const json input = json::parse(line);
    if (input.is_array()) {
      const auto ids = input.get<std::vector<std::int32_t>>();
      std::cout << json{{"ids", ids}, {"text", tokenizer.decode(ids, {.render_control = true})}} << '\n';
      continue;
    }
    const auto text = input.get<std::string>();
    auto start = std::clock();
    const auto ids = tokenizer.encode(text, options);
    encoding += seconds_since(start);
    if (!ids.ok()) {
      std::cout << json{{"error", ids.error().to_string()}} << '\n';
      continue;
    }
    start = std::clock();
    const std::string decoded = tokenizer.decode(*ids, {.render_control = true});
    decoding += seconds_since(start);
    n_bytes += text.size();
    n_ids += ids->size();
    std::cout << json{{"ids", *ids}, {"text", decoded}} << '\n';
  }
  fmt::print(stderr, "{} bytes, {} tokens; encode {:.1f} ms, decode {:.1f} ms\n", n_bytes, n_ids, encoding * 1e3,
             decoding * 1e3);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Encodes JSON strings and decodes JSON arrays of ids, one a line");
  std::string path;
  nibble::text::EncodeOptions options;
  app.add_option("vocabulary", path)->required()->check(CLI::ExistingFile);
  app.add_flag("--parse-special", options.parse_special);
  app.add_flag("--drop-unencodable", options.drop_unencodable);
  app.add_flag("!--no-add-special", options.add_special);
  CLI11_PARSE(app, argc, argv);
  auto vocabulary = read_vocabulary(path);
  if (!vocabulary.ok()) {
    fmt::print(stderr, "{}\n", vocabulary.error().to_string());
    return 1;
  }
  const auto start = std::clock();
  const auto tokenizer = Tokenizer::create(std::move(vocabulary).value());
  if (!tokenizer.ok()) {
    fmt::print(stderr, "{}\n", tokenizer.error().to_string());
    return 1;
  }
  fmt::print(stderr, "created in {:.1f} ms of processor time, digest {}\n", seconds_since(start) * 1e3,
             tokenizer->digest());
  return run(*tokenizer, options);
}
