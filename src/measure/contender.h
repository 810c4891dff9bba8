// What takes part in a timing: something that can do the same piece of work again and again, and says how long it took.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "measure/subject.h"

namespace nibble::measure {

enum class Work {
  kDecode,   // tokens one after another behind a fixed prefix, forced, not sampled
  kPrefill,  // a prompt into an empty cache
  kLoad,     // the file to the first logits, from the page cache
};
std::string_view work_name(Work work);

struct Task {
  Work work = Work::kDecode;
  std::vector<std::int32_t> prefix;  // decode: in the cache before the clock starts
  std::vector<std::int32_t> tokens;  // what is timed: decoded one by one, or prefilled at once
  std::string vocabulary = {};       // digest of the tokenizer that the tokens are of; empty: not checked
};

// {"work", "prefix_tokens", "timed_tokens", "tokens_sha256" of all their ids}: what two sides must have alike.
Json task_facts(const Task& task);

struct Sample {
  double seconds = 0;
  std::string digest = {};  // of the logits after the last token; empty where a peer tells none
};

class Contender {
 public:
  virtual ~Contender() = default;
  virtual Result<Sample> run() = 0;  // once
  virtual Json facts() const = 0;
};

// nibble itself, in this process.
Result<std::unique_ptr<Contender>> make_nibble_contender(const Subject& subject, const Task& task);

// Any command, run through the shell once a sample. If the last line that it prints is a JSON object with "seconds"
// (and perhaps "digest"), that is the sample; otherwise the time from its start to its end. What that line has of
// task_facts() must be those of `task`; facts() says "work": "not told" where "timed_tokens" is not there.
std::unique_ptr<Contender> make_command_contender(const std::string& command, const Task& task);

// llama.cpp on a GGUF of the same model. Both say in words what is missing if it cannot be run.
struct LlamaOptions {
  std::string model;  // path of a .gguf
  int n_threads = 1;
  std::string python = "python3";  // with llama-cpp-python, which stays loaded between samples
  std::string llama_bench = {};    // if set: this binary instead, started once a sample
};
Result<std::unique_ptr<Contender>> make_llama_contender(const LlamaOptions& options, const Task& task);

}  // namespace nibble::measure
