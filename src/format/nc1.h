// The widths and bounds of the numeric contract nc1 (docs/contract.md), named once for oracle and backends.
#pragma once

#include "format/portable.h"

namespace nibble::format::nc1 {

// Sections 3 and 4: activations of a linear layer.
NIBBLE_CONSTANT int kBlock = 64;            // elements along K that share one d
NIBBLE_CONSTANT int kActivationMax = 1023;  // |q| of an activation
NIBBLE_CONSTANT float kTiny = 0x1p-40f;     // a maximum below this is zero, wherever values are quantized
NIBBLE_CONSTANT int kRowMax = 16383;        // |w_q| of a 16-bit row
NIBBLE_CONSTANT int kRowUnitMin = -52;      // smallest exponent of its unit
NIBBLE_CONSTANT float kTensorScaleMin = 0x1p-42f;
NIBBLE_CONSTANT float kTensorScaleMax = 0x1p+42f;

// Section 5: lanes of the canonical float reduction.
NIBBLE_CONSTANT int kReduceLanes = 256;

// Section 7: attention.
NIBBLE_CONSTANT int kKeyMax = 1023;
NIBBLE_CONSTANT int kQueryMax = 255;
NIBBLE_CONSTANT int kValueMax = 127;
NIBBLE_CONSTANT int kProbabilityMax = 1023;
NIBBLE_CONSTANT int kScoreChunk = 64;          // elements along head_dim of one exact sum
NIBBLE_CONSTANT int kSplit = 128;              // keys, at absolute positions
NIBBLE_CONSTANT int kExponentFloor = -40;      // a smaller power of two counts as zero
NIBBLE_CONSTANT int kSumBits = 21;             // r = p * 2^21
NIBBLE_CONSTANT float kTinyWeight = 0x1p-53f;  // a split whose largest w is below this adds no value
NIBBLE_CONSTANT float kTinyOutput = 0x1p-80f;  // an output scaled down to less than this is zero

}  // namespace nibble::format::nc1
