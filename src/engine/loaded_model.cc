#include "engine/loaded_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/out_of_memory.h"
#include "base/printable.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "engine/vocabulary_from_gguf.h"
#include "kernels/native_hint.h"

namespace nibble::engine {
namespace {

// The contract of an id; none where the file decides.
Result<std::optional<Contract>> contract_of_id(const std::string& id) {
  if (id.empty()) return std::optional<Contract>();
  for (const Contract contract : kContracts) {
    if (id == contract_name(contract)) return std::optional<Contract>(contract);
  }
  return Error{.message = fmt::format("'{}' is not a contract", id),
               .found = id,
               .expected = "nc1, nk1, nc1-f16, w4a4, native or native-fp4"};
}

Status check_nc1(const GgufFile& file) {
  const TensorView* view = first_that_needs_nk1(file);
  if (view == nullptr) return ok_status();
  return Error{.message = "contract nc1 does not compute with weights of this type",
               .file = file.path_of(*view),
               .tensor = printable(view->name),
               .found = std::string(dtype_name(view->dtype)),
               .expected = "NVFP4, FP8, F32, F16, BF16 or Q8_0",
               .hint = "use {contract=nk1}"};
}

// Without NVFP4 weights these contracts are nk1 under another name.
Status check_has_nvfp4(const GgufFile& file, Contract contract) {
  if (lane_of(file) != Lane::kKquant) return ok_status();
  return Error{
      .message = fmt::format("contract {} is about NVFP4 weights, and the file has none", contract_name(contract)),
      .file = file.path(),
      .found = "no NVFP4 weights",
      .expected = "at least one",
      .hint = fmt::format("{{contract={}}} computes with this file",
                          first_that_needs_nk1(file) != nullptr ? "nk1" : "nc1")};
}

Status check_input_scales(const GgufFile& file, Contract contract) {
  const auto is_bare = [&file](const TensorView& t) {
    return t.dtype == DType::kNVFP4_E2M1 && file.find_tensor(std::string(t.name).append(kInputScaleSuffix)) == nullptr;
  };
  const auto bare = std::ranges::find_if(file.tensors(), is_bare);
  if (bare == file.tensors().end()) return ok_status();
  return Error{
      .message = fmt::format("contract {} computes with the input scales of NVFP4 weights", contract_name(contract)),
      .file = file.path_of(*bare),
      .tensor = printable(bare->name),
      .found = "a weight without one",
      .expected = fmt::format("a companion {} of every NVFP4 weight", kInputScaleSuffix),
      .hint = "leave {contract} out: the file then runs in the contract that it declares"};
}

kernels::ActivationFormat activations_of(Contract contract) {
  switch (contract) {
    case Contract::kNc1:
    case Contract::kNk1:
      break;
    case Contract::kNc1F16:
      return kernels::ActivationFormat::kA16Q8;
    case Contract::kW4A4:
      return kernels::ActivationFormat::kW4A4;
    case Contract::kNative:
      return kernels::ActivationFormat::kNative;
    case Contract::kNativeFp4:
      return kernels::ActivationFormat::kNativeFp4;
  }
  return kernels::ActivationFormat::kA11;
}

bool chooses_for_the_model(const LoadOptions& options) {
  const bool names_isa = !options.machine.isa.empty() && options.machine.isa != "auto";
  return (options.backend.empty() || options.backend == "auto") && !names_isa;
}

kernels::BackendNeeds needs_of(const GgufFile& file, const model::Config& config, Contract contract) {
  kernels::BackendNeeds needs{.activations = activations_of(contract), .abilities = model::needed_abilities(config)};
  for (const TensorView& tensor : file.tensors()) {
    if (is_companion(tensor.name)) continue;
    needs.weights.push_back({tensor.dtype, tensor.rows(), tensor.cols(), tensor.bytes.size()});
  }
  return needs;
}

Result<std::unique_ptr<kernels::Backend>> choose_backend(const LoadOptions& options,
                                                         const kernels::BackendNeeds& needs) {
  auto chosen = kernels::choose_backend(kernels::backend_entries(), options.machine, needs);
  if (!chosen.ok()) {
    Error error = std::move(chosen).error();
    if (kernels::is_native(needs.activations)) {
      error.expected = needs.activations == kernels::ActivationFormat::kNative
                           ? "a GPU: contract native is its own arithmetic"
                           : "a GPU with FP4 tensor cores: contract native-fp4 is their own arithmetic";
      error.hint = "use {contract=nc1}, which is the same on every backend";
    }
    return error;
  }
  if (!chosen->passed_over.empty() && options.on_note) {
    options.on_note(fmt::format("backend {} runs this model: {}", chosen->backend->name(), chosen->passed_over));
  }
  return std::move(chosen->backend);
}

// Strings of a conversation that a chat template could not take; its own errors are about the template.
Status check_message(const nlohmann::ordered_json& message) {
  const std::string role = message.value("role", "message");
  for (const auto& [key, value] : message.items()) {
    const auto* text = value.get_ptr<const std::string*>();
    if (text != nullptr) NIBBLE_TRY(check_utf8(*text, fmt::format("the {} of the {}", key, role)));
  }
  return ok_status();
}

}  // namespace

Status check_contract(const GgufFile& file, Contract contract) {
  if (contract == Contract::kNc1) return check_nc1(file);
  if (contract == Contract::kNk1) return ok_status();
  NIBBLE_TRY(check_has_nvfp4(file, contract));
  const bool encodes = contract == Contract::kW4A4 || contract == Contract::kNativeFp4;
  return encodes ? check_input_scales(file, contract) : ok_status();
}

Result<text::Tokenizer> load_tokenizer(const GgufFile& file, int vocab_size) {
  NIBBLE_ASSIGN(text::Vocabulary vocabulary, vocabulary_from_gguf(file));
  auto tokenizer = text::Tokenizer::create(std::move(vocabulary));
  if (!tokenizer.ok()) {
    Error error = std::move(tokenizer).error();
    error.file = file.path();
    return error;
  }
  if (tokenizer->vocab_size() != vocab_size) {
    return Error{.message = "vocabulary and embedding table disagree",
                 .file = file.path(),
                 .tensor = "token_embd.weight",
                 .found = fmt::format("{} rows", vocab_size),
                 .expected = fmt::format("{}, the length of tokenizer.ggml.tokens", tokenizer->vocab_size())};
  }
  return tokenizer;
}

Result<std::optional<text::ChatTemplate>> load_chat_template(const GgufFile& file) {
  NIBBLE_ASSIGN(const auto source, file.find_string("tokenizer.chat_template"));
  if (!source) return std::optional<text::ChatTemplate>();
  auto parsed = text::ChatTemplate::parse(std::string(*source));
  if (!parsed.ok()) {
    Error error = std::move(parsed).error();
    error.file = file.path();
    error.key = "tokenizer.chat_template";
    return error;
  }
  return std::optional<text::ChatTemplate>(std::move(*parsed));
}

Result<std::unique_ptr<LoadedModel>> load(const std::string& path, const LoadOptions& options) {
  // What is asked of the machine comes first: it costs nothing to refuse.
  NIBBLE_ASSIGN(const std::optional<Contract> wanted, contract_of_id(options.contract));
  std::unique_ptr<kernels::Backend> backend;
  if (!chooses_for_the_model(options)) {
    const auto format = activations_of(wanted.value_or(Contract::kNc1));  // files declare no native contract
    NIBBLE_ASSIGN(backend, kernels::hint_for(format, kernels::make_backend(options.backend, options.machine)));
  }
  NIBBLE_ASSIGN(Checkpoint checkpoint, Checkpoint::open(path));
  NIBBLE_TRY(check_lane(checkpoint.file(), options.lane));
  const Contract contract = wanted.value_or(checkpoint.contract());
  NIBBLE_TRY(check_contract(checkpoint.file(), contract));
  NIBBLE_ASSIGN(const model::Config config, model::read_config(checkpoint.file()));
  NIBBLE_ASSIGN(text::Tokenizer tokenizer, load_tokenizer(checkpoint.file(), config.vocab_size));
  NIBBLE_ASSIGN(auto chat_template, load_chat_template(checkpoint.file()));
  const kernels::BackendNeeds needs = needs_of(checkpoint.file(), config, contract);
  if (backend == nullptr) {
    NIBBLE_ASSIGN(backend, choose_backend(options, needs));
  }
  NIBBLE_TRY(backend->use_activations(needs.activations));
  NIBBLE_TRY(kernels::admit_weights(*backend, needs));
  NIBBLE_ASSIGN(auto model, or_out_of_memory("the weights of the model", [&] {
                  return model::load_model(std::move(checkpoint), std::move(backend), model::WeightForm::kAsStored,
                                           options.on_weights);
                }));
  const std::string source = chat_template ? chat_template->source() : std::string();
  std::string digest = chat_template ? sha256_hex(std::as_bytes(std::span(source))) : std::string();
  return std::make_unique<LoadedModel>(LoadedModel{std::string(contract_name(contract)), std::move(model),
                                                   std::move(tokenizer), std::move(chat_template), std::move(digest)});
}

Result<std::string> model_sha256(const GgufFile& file, const std::function<void(std::uint64_t)>& progress) {
  constexpr std::size_t kPiece = std::size_t{8} << 20;
  Sha256 hash;
  std::uint64_t done = 0;
  for (const GgufPart& part : file.parts()) {
    for (std::span<const std::byte> rest = part.bytes; !rest.empty();) {
      const auto piece = rest.first(std::min(kPiece, rest.size()));
      hash.update(piece);
      file.release(piece);  // the whole file would otherwise count as resident
      rest = rest.subspan(piece.size());
      done += piece.size();
      if (progress) progress(done);
    }
  }
  NIBBLE_TRY(file.check_unchanged());
  return to_hex(hash.finish());
}

Result<std::vector<std::int32_t>> encode_conversation(const LoadedModel& loaded,
                                                      const nlohmann::ordered_json& messages) {
  if (!loaded.chat_template) {
    return Error{.message = "the model has no chat template",
                 .file = loaded.file().path(),
                 .key = "tokenizer.chat_template",
                 .found = "no such key",
                 .expected = "a Jinja template",
                 .hint = "use 'nibble run' with a plain prompt"};
  }
  for (const nlohmann::ordered_json& message : messages) NIBBLE_TRY(check_message(message));
  const auto text_of = [&loaded](std::optional<std::int32_t> id) {
    return id ? std::string(loaded.tokenizer.token_bytes(*id)) : std::string();
  };
  const nlohmann::ordered_json context = {{"messages", messages},
                                          {"tools", nullptr},
                                          {"documents", nullptr},
                                          {"add_generation_prompt", true},
                                          {"bos_token", text_of(loaded.tokenizer.bos())},
                                          {"eos_token", text_of(loaded.tokenizer.eos())}};
  NIBBLE_ASSIGN(const std::string prompt, loaded.chat_template->render(context));
  return loaded.tokenizer.encode(prompt, {.parse_special = true, .add_special = false});
}

}  // namespace nibble::engine
