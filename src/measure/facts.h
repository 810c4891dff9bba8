// What every receipt says about the program and the machine that made it, and how it gets onto the disk.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "base/result.h"

namespace nibble::measure {

using Json = nlohmann::ordered_json;

// {"commit", "version", "compiler", "build", "build_flags"}, and of a build with CUDA "device_compiler". The commit
// ends in "+" if the sources had been changed.
Json program_facts();
// {"cpu", "os", "threads", "memory_bytes", "l3_bytes"}
Json machine_facts();

// Whole or not at all; an older file of the name stays where this fails.
Status write_text(const std::string& text, const std::string& path);
Status write_json(const Json& json, const std::string& path);

Result<std::string> read_text(const std::string& path);

}  // namespace nibble::measure
