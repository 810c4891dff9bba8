#include "engine/check_model.h"

#include <utility>

#include "engine/loaded_model.h"
#include "engine/vocabulary_from_gguf.h"
#include "model/config.h"
#include "model/tensor_specs.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace nibble::engine {
namespace {

template <typename T>
void note(const Result<T>& result, const GgufFile& file, std::vector<Error>& faults) {
  if (result.ok()) return;
  faults.push_back(result.error());
  if (faults.back().file.empty()) faults.back().file = file.path();
}

void check_use(const GgufFile& file, std::vector<Error>& faults) {
  const auto config = model::read_config(file);
  note(config, file, faults);
  if (config.ok()) {
    for (Error& fault : model::check_tensors(file, *config)) faults.push_back(std::move(fault));
    note(load_tokenizer(file, config->vocab_size), file, faults);
  }
  note(load_chat_template(file), file, faults);
}

}  // namespace

CheckReport check_model(const std::string& path, ThreadPool* pool, const CheckProgress& progress) {
  auto file = GgufFile::open(path);
  if (!file.ok()) return CheckReport{.lane = {}, .contract = {}, .faults = {std::move(file).error()}};
  std::uint64_t total = 0;
  for (const TensorView& tensor : file->tensors()) total += tensor.bytes.size();
  CheckReport report = verify_checkpoint(*file, pool, [&](std::uint64_t done) {
    if (progress) progress(done, total);
  });
  if (report.contract) {
    if (Status status = check_contract(*file, *report.contract); !status.ok()) {
      report.faults.push_back(std::move(status).error());
    }
  }
  check_use(*file, report.faults);
  return report;
}

}  // namespace nibble::engine
