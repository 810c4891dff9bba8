#include "model/model.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace nibble::model {
namespace {

// A backend that lacks an operation says so here, before anything of size is read.
Status check_abilities(const Config& config, const GgufFile& file, const kernels::Backend& backend) {
  const std::string_view family = config.architecture->name;
  for (const kernels::Ability ability : needed_abilities(config)) {
    if (backend.has(ability)) continue;
    return Error{.message = fmt::format("{} models need {}, which backend {} does not have", family,
                                        kernels::ability_name(ability), backend.name()),
                 .file = file.path(),
                 .key = "general.architecture",
                 .found = std::string(family),
                 .expected = "a family that the backend runs",
                 .hint = "use {backend=cpu}"};
  }
  return ok_status();
}

}  // namespace

std::vector<kernels::Ability> needed_abilities(const Config& config) {
  std::vector<kernels::Ability> needed;
  if (config.architecture->scales_embeddings) needed.push_back(kernels::Ability::kScale);
  if (config.architecture->gate == Gate::kGelu) needed.push_back(kernels::Ability::kGeluGate);
  if (config.window > 0) needed.push_back(kernels::Ability::kWindow);
  return needed;
}

Result<std::unique_ptr<Model>> load_model(Checkpoint checkpoint, std::unique_ptr<kernels::Backend> backend,
                                          WeightForm form, const WeightProgress& progress) {
  auto model = std::make_unique<Model>(std::move(checkpoint), std::move(backend));
  NIBBLE_ASSIGN(model->config, read_config(model->checkpoint.file()));
  NIBBLE_TRY(check_abilities(model->config, model->checkpoint.file(), *model->backend));
  NIBBLE_ASSIGN(model->weights, load_weights(model->checkpoint, model->config, *model->backend, form, progress));
  return model;
}

}  // namespace nibble::model
