// NVFP4: groups of 16 E2M1 codes under one E4M3 scale, and one f32 tensor_scale, always a multiplier.
#pragma once

#include "format/e2m1.h"
#include "format/e4m3.h"

namespace nibble::format {

NIBBLE_CONSTANT int kNvfp4Group = 16;
NIBBLE_CONSTANT int kNvfp4GroupBytes = 8;

// Two codes a byte: the even element in the low four bits.
NIBBLE_FN u32 nvfp4_code(u32 byte, int element) {
  return (byte >> ((element & 1) * 4)) & 15u;
}

// (code * scale) * tensor_scale. The first product has at most six significant bits and is exact, so the weight is
// rounded once. code * (scale * tensor_scale) would be another number.
NIBBLE_FN float nvfp4_dequantize(u32 code, u32 scale, float tensor_scale) {
  return (e2m1_decode(code) * e4m3_decode(scale)) * tensor_scale;
}

}  // namespace nibble::format
