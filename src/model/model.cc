#include "model/model.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace nibble::model {
namespace {

// A backend that lacks an operation says so here, before anything of size is read.
Status check_abilities(const Config& config, const GgufFile& file, const kernels::Backend& backend) {
  const Architecture& family = *config.architecture;
  const std::pair<bool, kernels::Ability> needs[] = {{family.scales_embeddings, kernels::Ability::kScale},
                                                     {family.gate == Gate::kGelu, kernels::Ability::kGeluGate},
                                                     {config.window > 0, kernels::Ability::kWindow}};
  for (const auto& [is_needed, ability] : needs) {
    if (!is_needed || backend.has(ability)) continue;
    return Error{.message = fmt::format("{} models need {}, which backend {} does not have", family.name,
                                        kernels::ability_name(ability), backend.name()),
                 .file = file.path(),
                 .key = "general.architecture",
                 .found = std::string(family.name),
                 .expected = "a family that the backend runs",
                 .hint = "pass --backend cpu"};
  }
  return ok_status();
}

}  // namespace

Result<std::unique_ptr<Model>> load_model(Checkpoint checkpoint, std::unique_ptr<kernels::Backend> backend,
                                          WeightForm form) {
  auto model = std::make_unique<Model>(std::move(checkpoint), std::move(backend));
  NIBBLE_ASSIGN(model->config, read_config(model->checkpoint.file()));
  NIBBLE_TRY(check_abilities(model->config, model->checkpoint.file(), *model->backend));
  NIBBLE_ASSIGN(model->weights, load_weights(model->checkpoint, model->config, *model->backend, form));
  return model;
}

}  // namespace nibble::model
