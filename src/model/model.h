// A model that is ready to run: its file, its hyper-parameters and its weights on a backend.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "io/checkpoint.h"
#include "kernels/backend.h"
#include "model/config.h"
#include "model/weights.h"

namespace nibble::model {

// Members refer to each other, so a Model lives behind a pointer and does not move.
struct Model {
  Model(Checkpoint c, std::unique_ptr<kernels::Backend> b) : checkpoint(std::move(c)), backend(std::move(b)) {}
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  Checkpoint checkpoint;  // outlives the weights, which point into its map
  std::unique_ptr<kernels::Backend> backend;
  Config config;
  Weights weights;
};

// What only some backends have.
std::vector<kernels::Ability> needed_abilities(const Config& config);

// Reads hyper-parameters and weights.
Result<std::unique_ptr<Model>> load_model(Checkpoint checkpoint, std::unique_ptr<kernels::Backend> backend,
                                          WeightForm form = WeightForm::kAsStored, const WeightProgress& progress = {});

}  // namespace nibble::model
