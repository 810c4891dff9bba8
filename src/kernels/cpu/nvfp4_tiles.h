// NVFP4 weights as the kernels read them: 16 rows by one block of 64 are one record of nine cache lines, and the
// records of a tile of rows follow each other, so that a tile is one sequential stream. A record has as many bytes as
// the file.
//
//   line 2g + z: of group g, elements 8z .. 8z + 7. Four bytes a row; byte j holds element kQuadOrder[j] in its low
//                nibble and kQuadOrder[j] + 4 in its high one
//   line 8:      four bytes a row; byte j is for group kQuadOrder[j]. Its low six bits are the scale, (8 + m) << e as
//                m | e << 3; its high two are a digit, worth 4^j, of kUnitBias + the exponent of the block's unit
//
// q9 = ((8 + m) << e) * 2^unit. The blocks of a step of the fma chain, one of a11 and four of a16q8, share their unit.
// What a scale of E4M3 may be besides, zero or negative, is folded into the codes.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/thread_pool.h"
#include "tensor/nvfp4_view.h"

namespace nibble::kernels::cpu {

// Blocks of a step in which some row's scales span more than seven octaves have no such unit. Their records hold
// kWideMark for all digits of the first row, a unit that no scale has; what is to be known stands in the file.

// Writes the records of all tiles to `records`, zeroed and [n_tiles, n_blocks, kRecordBytes]. is_wide [n_tiles] is set
// for tiles that have a wide block. blocks_per_step: 1 or 4.
void pack_nvfp4_tiles(const Nvfp4View& view, int blocks_per_step, ThreadPool& pool, std::uint8_t* records,
                      std::uint8_t* is_wide);

}  // namespace nibble::kernels::cpu
