#include "model/architecture.h"

namespace nibble::model {
namespace {

constexpr const Architecture* kArchitectures[] = {&kArchLlama, &kArchQwen2, &kArchQwen3, &kArchGemma3};

}  // namespace

std::span<const Architecture* const> architectures() {
  return kArchitectures;
}

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture* architecture : kArchitectures) {
    if (architecture->name == name) return architecture;
  }
  return nullptr;
}

}  // namespace nibble::model
