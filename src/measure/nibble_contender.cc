#include <chrono>
#include <span>
#include <utility>

#include "base/sha256.h"
#include "engine/logits_digest.h"
#include "engine/session.h"
#include "measure/contender.h"

namespace nibble::measure {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string digest_of(const engine::Session& session) {
  engine::LogitsDigest digest;
  digest.add(session.logits());
  return digest.whole();
}

class ModelContender final : public Contender {
 public:
  ModelContender(OpenSubject open, Task task) : open_(std::move(open)), task_(std::move(task)) {}

  Status prepare() {
    const std::size_t positions = task_.prefix.size() + task_.tokens.size();
    NIBBLE_ASSIGN(session_,
                  engine::Session::create(*open_.loaded->model, {.n_ctx = static_cast<int>(positions),
                                                                 .prefill_chunk = open_.subject.prefill_chunk}));
    return ok_status();
  }

  Result<Sample> run() override {
    if (task_.work == Work::kPrefill) {
      session_->clear();
    } else {
      NIBBLE_TRY(session_->prefill(task_.prefix));  // of the cache only the last position of it is run again
    }
    const Clock::time_point begin = Clock::now();
    if (task_.work == Work::kPrefill) {
      NIBBLE_TRY(session_->prefill(task_.tokens));
    } else {
      for (const std::int32_t token : task_.tokens) NIBBLE_TRY(session_->decode(token));
    }
    const double seconds = since(begin);
    NIBBLE_TRY(open_.loaded->file().check_unchanged());
    return Sample{seconds, digest_of(*session_)};
  }
  Json facts() const override { return subject_facts(open_); }

 private:
  OpenSubject open_;
  Task task_;
  std::unique_ptr<engine::Session> session_;
};

class LoadContender final : public Contender {
 public:
  LoadContender(Subject subject, Json facts, Task task)
      : subject_(std::move(subject)), facts_(std::move(facts)), task_(std::move(task)) {}

  Result<Sample> run() override {
    const Clock::time_point begin = Clock::now();
    NIBBLE_ASSIGN(const auto loaded, engine::load(subject_.model, {.backend = subject_.backend,
                                                                   .machine = {.isa = subject_.isa,
                                                                               .n_threads = subject_.n_threads,
                                                                               .pins_threads = subject_.pins_threads},
                                                                   .contract = subject_.contract}));
    NIBBLE_ASSIGN(const auto session,
                  engine::Session::create(*loaded->model, {.prefill_chunk = subject_.prefill_chunk}));
    NIBBLE_TRY(session->prefill(task_.tokens));
    const double seconds = since(begin);
    return Sample{seconds, digest_of(*session)};
  }
  Json facts() const override { return facts_; }

 private:
  Subject subject_;
  Json facts_;
  Task task_;
};

}  // namespace

std::string_view work_name(Work work) {
  switch (work) {
    case Work::kDecode:
      return "decode";
    case Work::kPrefill:
      return "prefill";
    case Work::kLoad:
      return "load";
  }
  return "";
}

Json task_facts(const Task& task) {
  Sha256 ids;
  for (const auto& part : {std::span(task.prefix), std::span(task.tokens)}) ids.update(std::as_bytes(part));
  return {{"work", work_name(task.work)},
          {"prefix_tokens", task.prefix.size()},
          {"timed_tokens", task.tokens.size()},
          {"tokens_sha256", to_hex(ids.finish())}};
}

Result<std::unique_ptr<Contender>> make_nibble_contender(const Subject& subject, const Task& task) {
  NIBBLE_ASSIGN(OpenSubject open, open_subject(subject));
  NIBBLE_TRY(check_vocabulary(subject.model, open.loaded->tokenizer, task.vocabulary));
  if (task.work == Work::kLoad) {
    if (subject.in_floats())
      return Error{.message = "only what 'nibble run' loads can be timed", .expected = "another contract than float"};
    return std::unique_ptr<Contender>(std::make_unique<LoadContender>(subject, subject_facts(open), task));
  }
  auto contender = std::make_unique<ModelContender>(std::move(open), task);
  NIBBLE_TRY(contender->prepare());
  return std::unique_ptr<Contender>(std::move(contender));
}

}  // namespace nibble::measure
