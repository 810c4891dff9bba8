// A start-up test of some milliseconds: would this GPU, with this driver, compute what the contract says?
#pragma once

#include "base/result.h"
#include "kernels/backend.h"
#include "kernels/cuda/device.h"

namespace nibble::kernels::cuda {

// Refuses a chip whose tensor cores do not sum exactly where the kernels need it.
Status check_tensor_cores(const Device& device, const Stream& stream);

// Refuses a GPU without FP4 tensor cores that a warp can use, a binary without code for them, and a GPU whose product
// of known operands is another than the file's layout makes it.
Status check_fp4(const Device& device, const Stream& stream);

// Refuses a backend that sings another digest than the rest.
Status check_digest(const Device& device, Backend& backend);

}  // namespace nibble::kernels::cuda
