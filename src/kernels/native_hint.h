// Hints of a backend in a native contract, where "{backend=cpu} gives the same answer" is not true.
#pragma once

#include <utility>

#include "kernels/backend.h"

namespace nibble::kernels {

// Of an error that a backend meets in a native contract, which no other backend has: the parts of its hint that name
// another one give way to another contract.
Error in_native_contract(Error error);

template <typename T>
Result<T> hint_for(ActivationFormat activations, Result<T> result) {
  if (result.ok() || !is_native(activations)) return result;
  return in_native_contract(std::move(result).error());
}

}  // namespace nibble::kernels
