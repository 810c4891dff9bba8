// Perplexity of a text, and how far one model is from another on it, token by token of the text and never of their own.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "measure/divergence.h"
#include "measure/facts.h"
#include "measure/subject.h"

namespace nibble::measure {

struct QualityOptions {
  int window = 512;    // tokens; each starts from an empty cache, and with BOS where the model's tokenizer adds it
  int stride = 0;      // from one window to the next; 0: the window. Smaller: more context, more work
  int max_tokens = 0;  // of each text; 0: all
};

// Position p of a text predicts token p + 1. Every position counts once, in the first window that holds it.
struct Window {
  std::size_t begin = 0, end = 0;  // tokens
  std::size_t first_counted = 0;
  bool operator==(const Window&) const = default;
};
Result<std::vector<Window>> plan_windows(std::size_t n_tokens, const QualityOptions& options);

// A text is a class of content; its name is the file's without folder and ending.
struct Text {
  std::string name;
  std::string file;  // base name
  std::string sha256;
  std::string content;
};
Result<std::vector<Text>> read_classes(std::span<const std::string> paths);  // refuses two of one name

using QualityProgress = std::function<void(std::size_t done, std::size_t total)>;  // tokens

// {"what": "ppl", program facts, machine facts, "model": subject facts, window, stride, "classes": {name: {file,
// sha256, tokens, scored, nll (mean, nats), nll_error (of the mean, 1 sigma), perplexity}}, "all": {...}}
Result<Json> measure_perplexity(OpenSubject& subject, std::span<const Text> texts, const QualityOptions& options,
                                const QualityProgress& progress = {});

// {"what": "compare", program facts, machine facts, "a", "b": subject facts, window, stride, "classes": {name: {file,
// sha256, tokens, summary, "bands": {"0-15": summary, ...}}}, "bands", "all"}: a is the reference. A band is a range of
// positions in the window. A summary has the fields of DivergenceSummary, a_perplexity and b_perplexity among them.
Result<Json> compare_quality(OpenSubject& a, OpenSubject& b, std::span<const Text> texts, const QualityOptions& options,
                             const QualityProgress& progress = {});

// A bound on one field of every class and of all; passed and worst value are added to the receipt as "gates".
struct Gate {
  std::string field;  // "mean_kl", "top1_agreement", "perplexity", "b_perplexity"
  double limit = 0;
  bool is_minimum = false;
};
bool apply_gates(std::span<const Gate> gates, Json& receipt);  // false: one failed

}  // namespace nibble::measure
