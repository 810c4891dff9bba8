#include "model/model.h"

#include <utility>

namespace nibble::model {

Result<std::unique_ptr<Model>> load_model(Checkpoint checkpoint, std::unique_ptr<kernels::Backend> backend,
                                          WeightForm form) {
  auto model = std::make_unique<Model>(std::move(checkpoint), std::move(backend));
  NIBBLE_ASSIGN(model->config, read_config(model->checkpoint.file()));
  NIBBLE_ASSIGN(model->weights, load_weights(model->checkpoint, model->config, *model->backend, form));
  return model;
}

}  // namespace nibble::model
