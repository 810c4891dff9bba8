// One side of a comparison: a model file and the way it is run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/loaded_model.h"
#include "measure/facts.h"

namespace nibble::measure {

struct Subject {
  std::string model;  // path
  std::string backend = "auto";
  std::string isa = "auto";
  int n_threads = 0;          // 0: one per core
  bool pins_threads = true;   // as of kernels::BackendOptions
  std::string contract = {};  // empty: the file decides; "float": weights as floats, float arithmetic, any GGUF
  int prefill_chunk = 64;
  std::function<void(const std::string&)> on_note = {};  // as of engine::LoadOptions

  bool in_floats() const { return contract == "float"; }
  std::string label() const;  // "model.gguf, cpu, avx2, 2 threads": what was asked for, for people
};

// Float arithmetic is plain loops of its own: it has no backends and no instruction sets to choose.
Status check_combination(const Subject& subject);

// `base` with some settings changed: "isa=avx2,threads=1". Keys: model, backend, isa, threads, pin, contract, chunk.
Result<Subject> with_settings(Subject base, std::string_view settings);

// Whether the tokens of the model at `path` are those of a tokenizer with this digest; no digest is not checked.
Status check_vocabulary(const std::string& path, const text::Tokenizer& tokenizer, const std::string& digest);

struct OpenSubject {
  Subject subject;
  std::unique_ptr<engine::LoadedModel> loaded;  // its contract is "float" where it runs in floats
  std::string sha256;                           // of the file
};
Result<OpenSubject> open_subject(const Subject& subject);

// {"file", "model_sha256", "bytes", "contract", "backend", "chunk"}
Json subject_facts(const OpenSubject& open);

}  // namespace nibble::measure
