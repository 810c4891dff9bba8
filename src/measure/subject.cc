#include "measure/subject.h"

#include <fmt/format.h>

#include <charconv>
#include <set>
#include <utility>

#include "kernels/float_backend.h"

namespace nibble::measure {
namespace {

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

Status set(Subject& subject, std::string_view key, std::string_view value) {
  const auto number = [&](int& target, int least) -> Status {
    int n = 0;
    const auto end = std::from_chars(value.data(), value.data() + value.size(), n);
    if (end.ec != std::errc() || end.ptr != value.data() + value.size() || n < least) {
      return Error{.message = fmt::format("'{}' is not a value of '{}'", value, key),
                   .found = std::string(value),
                   .expected = fmt::format("a number from {}", least)};
    }
    target = n;
    return ok_status();
  };
  if (key == "model")
    subject.model = value;
  else if (key == "backend")
    subject.backend = value;
  else if (key == "isa")
    subject.isa = value;
  else if (key == "contract")
    subject.contract = value;
  else if (key == "threads")
    return number(subject.n_threads, 0);
  else if (key == "pin" && (value == "auto" || value == "off"))
    subject.pins_threads = value == "auto";
  else if (key == "pin") {
    return Error{.message = fmt::format("'{}' is not a value of 'pin'", value),
                 .found = std::string(value),
                 .expected = "auto or off"};
  } else if (key == "chunk")
    return number(subject.prefill_chunk, 1);
  else {
    return Error{.message = fmt::format("'{}={}' is not a setting", key, value),
                 .found = std::string(key),
                 .expected = "model=, backend=, isa=, threads=, pin=, contract=, chunk="};
  }
  return ok_status();
}

Result<std::unique_ptr<engine::LoadedModel>> load_in_floats(const Subject& subject) {
  NIBBLE_ASSIGN(Checkpoint checkpoint, Checkpoint::open(subject.model));
  NIBBLE_ASSIGN(const model::Config config, model::read_config(checkpoint.file()));
  NIBBLE_ASSIGN(text::Tokenizer tokenizer, engine::load_tokenizer(checkpoint.file(), config.vocab_size));
  NIBBLE_ASSIGN(auto model, model::load_model(std::move(checkpoint), kernels::make_float_backend(subject.n_threads),
                                              model::WeightForm::kFloat));
  return std::make_unique<engine::LoadedModel>(
      engine::LoadedModel{"float", std::move(model), std::move(tokenizer), std::nullopt, ""});
}

}  // namespace

std::string Subject::label() const {
  std::string text = base_name(model);
  if (backend != "auto") text += ", " + backend;
  if (isa != "auto") text += ", " + isa;
  if (!contract.empty()) text += ", " + contract;
  if (n_threads > 0) text += fmt::format(", {} thread{}", n_threads, n_threads == 1 ? "" : "s");
  if (!pins_threads) text += ", not pinned";
  return text;
}

Status check_combination(const Subject& subject) {
  const bool is_auto = subject.backend == "auto" && subject.isa == "auto";
  if (!subject.in_floats() || is_auto) return ok_status();
  return Error{.message = "contract float has no backends or instruction sets to choose",
               .found = fmt::format("contract float, backend {}, isa {}", subject.backend, subject.isa),
               .expected = "backend auto and isa auto, or another contract"};
}

Result<Subject> with_settings(Subject base, std::string_view settings) {
  std::set<std::string_view> keys;
  for (bool more = !settings.empty(); more;) {
    const std::string_view setting = settings.substr(0, settings.find(','));
    more = setting.size() < settings.size();  // a comma, which something follows
    settings.remove_prefix(setting.size() + (more ? 1 : 0));
    const std::size_t equals = setting.find('=');
    if (equals == std::string_view::npos) {
      return Error{.message = fmt::format("'{}' is not a setting", setting),
                   .found = std::string(setting),
                   .expected = "KEY=VALUE, several with commas between them"};
    }
    const std::string_view key = setting.substr(0, equals);
    if (!keys.insert(key).second) {
      return Error{.message = fmt::format("setting '{}' stands twice", key),
                   .found = std::string(setting),
                   .expected = "every setting once"};
    }
    NIBBLE_TRY(set(base, key, setting.substr(equals + 1)));
  }
  return base;
}

Status check_vocabulary(const std::string& path, const text::Tokenizer& tokenizer, const std::string& digest) {
  if (digest.empty() || tokenizer.digest() == digest) return ok_status();
  return Error{.message = "the two models do not have the same tokens",
               .file = path,
               .found = fmt::format("{} tokens, vocabulary {}", tokenizer.vocab_size(), tokenizer.digest()),
               .expected = fmt::format("vocabulary {}", digest),
               .hint = "compare a model with another form of the same model"};
}

Result<OpenSubject> open_subject(const Subject& subject) {
  NIBBLE_TRY(check_combination(subject));
  OpenSubject open;
  open.subject = subject;
  if (subject.in_floats()) {
    NIBBLE_ASSIGN(open.loaded, load_in_floats(subject));
  } else {
    NIBBLE_ASSIGN(open.loaded, engine::load(subject.model, {.backend = subject.backend,
                                                            .machine = {.isa = subject.isa,
                                                                        .n_threads = subject.n_threads,
                                                                        .pins_threads = subject.pins_threads},
                                                            .contract = subject.contract,
                                                            .on_note = subject.on_note}));
  }
  NIBBLE_ASSIGN(open.sha256, engine::model_sha256(open.loaded->file()));
  return open;
}

Json subject_facts(const OpenSubject& open) {
  std::uint64_t bytes = 0;
  for (const GgufPart& part : open.loaded->file().parts()) bytes += part.bytes.size();
  return {{"file", base_name(open.loaded->file().path())},
          {"model_sha256", open.sha256},
          {"bytes", bytes},
          {"contract", open.loaded->contract},
          {"backend", open.loaded->model->backend->description()},
          {"chunk", open.subject.prefill_chunk}};
}

}  // namespace nibble::measure
