#include "apps/output_path.h"

#include "base/atomic_file.h"
#include "io/gguf_split.h"

namespace nibble::apps {

Status check_output(const std::string& output, const std::vector<std::string>& inputs) {
  if (output.empty()) return ok_status();
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    if (input == "-") {
      files.emplace_back("/dev/stdin");
    } else {
      for (std::string& part : part_paths(input)) files.push_back(std::move(part));
    }
  }
  return AtomicFile::check(output, files);
}

}  // namespace nibble::apps
