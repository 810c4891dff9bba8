// How floats become NVFP4. Every recipe writes the same format; they differ in the block scales that they choose.
//
//   max      NVIDIA ModelOpt's export, bit for bit: the largest weight of a group becomes the largest code
//   4over6   of two scales per group, for which the largest weight becomes code 6 or 4, the one with the smaller error
//            (Cook et al., "Four Over Six", 2025): codes near 6 are far apart
//   mse      of all scales from a little below the one of max to the one that makes the largest weight a 4, the one
//            with the smallest squared error
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace nibble {

enum class Recipe { kMax, kFourOverSix, kMse };

std::string_view recipe_name(Recipe recipe);  // as in --recipe and in nibble.recipe
std::optional<Recipe> find_recipe(std::string_view name);

// The scale of a tensor whose largest magnitude is `amax`: amax / (6 * 448), for 4over6 amax / (6 * 256), so that a
// scale half as large again is still an E4M3 number. 1 for a tensor of zeros.
float tensor_scale_of(Recipe recipe, float amax);

// The E4M3 byte for which a group of largest magnitude `amax` just fits.
std::uint8_t max_block_scale(float amax, float tensor_scale);

// One row of finite weights [cols], cols a multiple of 16, into codes [cols / 2] and scales [cols / 16]. Of equal
// errors the smaller scale wins, so that a file does not depend on who made it.
void quantize_row(Recipe recipe, std::span<const float> weights, float tensor_scale, std::span<std::uint8_t> codes,
                  std::span<std::uint8_t> scales);

}  // namespace nibble
