// The input of linear layers on the CPU: a matrix of activations in the formats that weights meet.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "format/nc1.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/host_memory.h"

namespace nibble::kernels::cpu {

// One format of a matrix of activations.
struct Integers {
  Integers() = default;
  Integers(int max_rows, int max_planes, int n_blocks)
      : q(static_cast<std::size_t>(max_rows) * n_blocks * format::nc1::kBlock),
        planes(static_cast<std::size_t>(max_planes) * n_blocks),
        d(static_cast<std::size_t>(max_rows) * n_blocks) {}
  AlignedBuffer<std::int16_t> q;     // [n_blocks, n_rows, 64]: blocks of the current n_rows lie together
  AlignedBuffer<PlaneBlock> planes;  // [n_blocks, n_rows], up to max_planes rows
  AlignedBuffer<float> d;            // [n_blocks, n_rows]
};

struct CpuLinearInput final : LinearInput {
  CpuLinearInput(int rows, int columns, ActivationFormat format, bool takes_planes)
      : max_rows(rows),
        max_planes(takes_planes ? rows : std::min(rows, kMaxGemvTokens)),
        n_blocks((columns + 63) / 64),
        a11(max_rows, max_planes, n_blocks),
        sums(static_cast<std::size_t>(max_rows) * n_blocks * kSumsPerBlock) {
    if (format == ActivationFormat::kA16Q8) a16q8 = Integers(max_rows, max_planes, n_blocks);
    n_in = columns;
  }
  Activations view(const Integers& of) const {
    return {.q = of.q.data(),
            .planes = of.planes.data(),
            .d = of.d.data(),
            .sums = sums.data(),
            .x = x,
            .n_rows = n_rows,
            .n_in = n_in,
            .n_blocks = n_blocks};
  }
  int max_rows;
  int max_planes;  // of more rows there are no planes
  int n_blocks;
  Integers a11;
  Integers a16q8;                    // empty where NVFP4 weights meet a11
  AlignedBuffer<std::int16_t> sums;  // [n_blocks, n_rows, kSumsPerBlock], of a11
  const float* x = nullptr;
};

}  // namespace nibble::kernels::cpu
