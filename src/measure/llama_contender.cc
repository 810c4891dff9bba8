// llama.cpp as a peer: through llama-cpp-python, which keeps the model loaded, or through its own llama-bench.
#include <fmt/format.h>

#include <utility>

#include "measure/child_process.h"
#include "measure/contender.h"
#include "measure/python_drivers.h"
#include "measure/python_peer.h"

namespace nibble::measure {
namespace {

constexpr double kTimeout = 1800;

Error not_here(const std::string& what, const LlamaOptions& options) {
  return Error{
      .message = "llama.cpp cannot be run beside nibble: " + what,
      .file = options.model,
      .found = what,
      .expected = "a Python with llama-cpp-python, or a llama-bench binary",
      .hint =
          "pip install llama-cpp-python and name its Python ({python}); or name a llama-bench ({llama-bench}); on a "
          "machine with AMX it must be built with GGML_NATIVE=OFF"};
}

std::string string_at(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
}

class PythonContender final : public Contender {
 public:
  PythonContender(PythonPeer peer, LlamaOptions options) : peer_(std::move(peer)), options_(std::move(options)) {}

  Result<Sample> run() override {
    auto sample = peer_.sample();
    if (!sample.ok()) return not_here(sample.error().message, options_);
    return sample;
  }
  Json facts() const override {
    return {{"peer", "llama.cpp"},
            {"description", peer_.description()},
            {"file", options_.model.substr(options_.model.rfind('/') + 1)},
            {"threads", options_.n_threads}};
  }

 private:
  PythonPeer peer_;
  LlamaOptions options_;
};

Result<std::unique_ptr<Contender>> make_python_contender(const LlamaOptions& options, const Task& task) {
  auto peer = PythonPeer::start(options.python, kLlamaDriver,
                                {{"model", options.model},
                                 {"work", work_name(task.work)},
                                 {"prefix", task.prefix},
                                 {"tokens", task.tokens},
                                 {"threads", options.n_threads}});
  if (!peer.ok()) return not_here(peer.error().message, options);
  return std::unique_ptr<Contender>(std::make_unique<PythonContender>(std::move(*peer), options));
}

// llama-bench -r 1 -o json: an array of tests, each with its samples in nanoseconds. It decodes from an empty cache or
// behind a depth (-d), tokens of its own choice; its warm-up is not in the sample.
class BenchContender final : public Contender {
 public:
  BenchContender(LlamaOptions options, const Task& task) : options_(std::move(options)) {
    const bool decode = task.work == Work::kDecode;
    argv_ = {options_.llama_bench,
             "-m",
             options_.model,
             "-t",
             std::to_string(options_.n_threads),
             "-ngl",
             "0",
             "-r",
             "1",
             "-o",
             "json",
             "-p",
             std::to_string(decode ? 0 : task.tokens.size()),
             "-n",
             std::to_string(decode ? task.tokens.size() : 0)};
    if (decode && !task.prefix.empty()) argv_.insert(argv_.end(), {"-d", std::to_string(task.prefix.size())});
  }

  Result<Sample> run() override {
    auto child = ChildProcess::start(argv_, true);
    if (!child.ok()) return not_here(child.error().message, options_);
    auto output = child->read_all(kTimeout);
    if (!output.ok()) return not_here(output.error().message, options_);
    const Json tests = Json::parse(*output, nullptr, false);
    const Json::json_pointer samples("/0/samples_ns/0");
    if (!tests.is_array() || !tests.contains(samples) || !tests[samples].is_number() ||
        tests[samples].get<double>() <= 0) {
      return not_here("its output has no samples_ns", options_);
    }
    if (const std::string commit = string_at(tests[0], "build_commit"); !commit.empty()) commit_ = commit;
    return Sample{tests[samples].get<double>() * 1e-9, ""};
  }
  Json facts() const override {
    return {{"peer", "llama.cpp"},
            {"description", fmt::format("llama-bench, commit {}", commit_)},
            {"file", options_.model.substr(options_.model.rfind('/') + 1)},
            {"threads", options_.n_threads}};
  }

 private:
  LlamaOptions options_;
  std::vector<std::string> argv_;
  std::string commit_ = "unknown";
};

}  // namespace

Result<std::unique_ptr<Contender>> make_llama_contender(const LlamaOptions& options, const Task& task) {
  if (task.work == Work::kLoad) {
    return Error{.message = "loading is not timed against llama.cpp", .expected = "decode or prefill"};
  }
  if (!task.vocabulary.empty()) {
    NIBBLE_ASSIGN(const auto file, GgufFile::open(options.model));
    NIBBLE_ASSIGN(const model::Config config, model::read_config(file));
    NIBBLE_ASSIGN(const text::Tokenizer tokenizer, engine::load_tokenizer(file, config.vocab_size));
    NIBBLE_TRY(check_vocabulary(options.model, tokenizer, task.vocabulary));
  }
  if (options.llama_bench.empty()) return make_python_contender(options, task);
  return std::unique_ptr<Contender>(std::make_unique<BenchContender>(options, task));
}

}  // namespace nibble::measure
