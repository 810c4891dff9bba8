// Whole models timed: one contender, or two whose samples alternate, so that what the machine does meanwhile meets
// both.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "measure/contender.h"
#include "measure/statistics.h"

namespace nibble::measure {

// What is decoded or prefilled: the first tokens of the text, or seeded ids of the vocabulary where there is no text.
Result<std::vector<std::int32_t>> task_tokens(const text::Tokenizer& tokenizer, const std::string& text, std::size_t n);
Result<Task> make_task(Work work, const std::string& model, const std::string& text_file, int n_prefix, int n_tokens);

struct BenchOptions {
  int repetitions = 9;  // counted, of each; at least kMinPairs
  int warmups = 2;
};
using BenchProgress = std::function<void(int done, int of)>;

// Samples of `a`, and of `b` if there is one, in the order ABBAABBA... Fails if samples of one contender have different
// digests: then it is not the same work that was timed.
// {"what": "bench decode", program facts, "machine": {facts, "read_gb_per_s"}, "settings": {...}, "cells": [{"label":
// "A", contender facts, samples_s, median_s, cv, tokens_per_s, digest}, ...], "same_logits": A's digest is B's, null
// where one tells none, "speed_of_a": {"ratio": median of B / median of A, "low", "high", "excludes_one", "method"}}
Result<Json> bench_model(const Task& task, Contender& a, Contender* b, const BenchOptions& options,
                         const BenchProgress& progress = {});

}  // namespace nibble::measure
