// Everything that a model file holds, ready to answer: weights on a backend, tokenizer, chat template, contract.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "io/lane.h"
#include "kernels/registry.h"
#include "model/model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace nibble::engine {

struct LoadOptions {
  std::string backend = "auto";
  kernels::BackendOptions machine = {};
  std::string contract = {};  // empty: the file decides; otherwise the id that the user asks for
  std::string lane = {};      // empty: the file decides; otherwise another one is refused
  // Hears a sentence for people where "auto" had to pass over a backend.
  std::function<void(const std::string&)> on_note = {};
  model::WeightProgress on_weights = {};  // while they travel to the backend
};

struct LoadedModel {
  std::string contract;
  std::unique_ptr<model::Model> model;
  text::Tokenizer tokenizer;
  std::optional<text::ChatTemplate> chat_template;  // empty: the file has none
  std::string chat_template_sha256;                 // empty without one

  const GgufFile& file() const { return model->checkpoint.file(); }
  std::string_view lane() const { return lane_name(lane_of(file())); }
};

// Opens and checks the file, chooses the backend and loads. Refuses a contract that the backends do not run.
Result<std::unique_ptr<LoadedModel>> load(const std::string& path, const LoadOptions& options);

// Whether the contract computes with the file's weights, and is not another one under a name of its own.
Status check_contract(const GgufFile& file, Contract contract);

// The parts of load() that check_model uses as well. A file without a chat template has none: an empty optional.
Result<text::Tokenizer> load_tokenizer(const GgufFile& file, int vocab_size);
Result<std::optional<text::ChatTemplate>> load_chat_template(const GgufFile& file);

// SHA-256 of the file; of a split model, of its parts in order, as if they were joined.
Result<std::string> model_sha256(const GgufFile& file, const std::function<void(std::uint64_t)>& progress = {});

// Prompt tokens of a conversation: [{"role": ..., "content": ...}, ...] through the model's own template. No BOS is
// added: templates write it where the model wants it.
Result<std::vector<std::int32_t>> encode_conversation(const LoadedModel& loaded,
                                                      const nlohmann::ordered_json& messages);

}  // namespace nibble::engine
