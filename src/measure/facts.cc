#include "measure/facts.h"

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/machine.h"
#include "base/mapped_file.h"

namespace nibble::measure {

Json program_facts() {
  Json facts = {{"commit", kCommit},
                {"version", kVersion},
                {"compiler", kCompiler},
                {"build", kBuildType},
                {"build_flags", kBuildFlags}};
  if (kDeviceCompiler[0] != '\0') facts["device_compiler"] = kDeviceCompiler;
  return facts;
}

Json machine_facts() {
  return {{"cpu", cpu_model_name()},
          {"os", operating_system()},
          {"threads", hardware_threads()},
          {"memory_bytes", physical_memory_bytes()},
          {"l3_bytes", last_level_cache_bytes()}};
}

Status write_json(const Json& json, const std::string& path) {
  return write_text(json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n", path);
}

Status write_text(const std::string& text, const std::string& path) {
  NIBBLE_ASSIGN(AtomicFile file, AtomicFile::create(path));
  NIBBLE_TRY(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

Result<std::string> read_text(const std::string& path) {
  NIBBLE_ASSIGN(const MappedFile map, MappedFile::open(path));
  const std::span<const std::byte> bytes = map.bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace nibble::measure
