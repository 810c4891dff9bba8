// Parses one GGUF file; io/gguf.h joins the parts of a split model.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "io/gguf.h"

namespace nibble {

constexpr std::uint64_t kGgufMaxEntries = 100'000;
constexpr std::uint64_t kGgufMaxTensors = 1'000'000;
constexpr std::uint64_t kGgufMaxNameBytes = 65'535;
constexpr int kGgufMaxNesting = 8;  // arrays in arrays
constexpr std::uint64_t kGgufDefaultAlignment = 32;

// Fills everything of a GgufPart but `map`.
Result<GgufPart> parse_gguf_part(std::span<const std::byte> bytes, const std::string& path);

}  // namespace nibble
