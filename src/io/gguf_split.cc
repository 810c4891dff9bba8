#include "io/gguf_split.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "base/printable.h"
#include "io/gguf_parse.h"

namespace nibble {
namespace {

constexpr std::uint64_t kMaxParts = 65'535;  // split.count is a U16

Result<GgufPart> open_part(const std::string& path) {
  NIBBLE_ASSIGN(MappedFile map, MappedFile::open(path));
  NIBBLE_ASSIGN(GgufPart part, parse_gguf_part(map.bytes(), path));
  part.map = std::move(map);
  return part;
}

Error fault(const GgufPart& part, std::string message, std::string key, std::string found, std::string expected) {
  return Error{.message = std::move(message),
               .file = part.path,
               .key = std::move(key),
               .found = std::move(found),
               .expected = std::move(expected)};
}

Result<std::optional<std::uint64_t>> find_uint(const GgufPart& part, const char* key) {
  const GgufValue* value = part.find_value(key);
  if (value == nullptr) return std::optional<std::uint64_t>();
  const std::optional<std::uint64_t> number = value->as_uint();
  if (!number) return fault(part, "a split key is not a count", key, value->type_text(), "an integer of 0 or more");
  return number;
}

Status require_value(const GgufPart& part, const char* key, std::uint64_t expected, const char* message) {
  NIBBLE_ASSIGN(const std::optional<std::uint64_t> found, find_uint(part, key));
  if (found == expected) return ok_status();
  return fault(part, message, key, found ? std::to_string(*found) : "nothing", std::to_string(expected));
}

std::string suffix(std::uint64_t number, std::uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

}  // namespace

Result<std::vector<GgufPart>> open_gguf_parts(const std::string& path) {
  std::vector<GgufPart> parts;
  NIBBLE_ASSIGN(GgufPart first, open_part(path));
  NIBBLE_ASSIGN(const std::optional<std::uint64_t> split_count, find_uint(first, "split.count"));
  const std::uint64_t count = split_count.value_or(1);
  if (count == 0 || count > kMaxParts) {
    return fault(first, "the number of parts is impossible", "split.count", std::to_string(count), "1 to 65535");
  }
  parts.push_back(std::move(first));
  if (count == 1) return parts;

  NIBBLE_TRY(require_value(parts[0], "split.no", 0, "this is not the first part of the model: pass the first"));
  const std::string first_suffix = suffix(1, count);
  if (!path.ends_with(first_suffix)) {
    return fault(parts[0], "the name of the first part does not tell how the others are called", {}, printable(path),
                 "a name that ends in " + first_suffix);
  }
  const std::string stem = path.substr(0, path.size() - first_suffix.size());
  std::uint64_t n_tensors = parts[0].tensors.size();
  for (std::uint64_t i = 1; i < count; ++i) {
    Result<GgufPart> part = open_part(stem + suffix(i + 1, count));
    if (!part.ok()) {
      Error error = std::move(part).error();
      error.hint = fmt::format("the model has {} parts, which must all lie in one folder", count);
      return error;
    }
    NIBBLE_TRY(require_value(*part, "split.no", i, "a part of the model is not the one its name says"));
    NIBBLE_TRY(require_value(*part, "split.count", count, "the parts do not agree on their number"));
    n_tensors += part->tensors.size();
    parts.push_back(std::move(*part));
  }
  NIBBLE_TRY(require_value(parts[0], "split.tensors.count", n_tensors,
                           "the parts together do not hold as many tensors as the first announces"));
  return parts;
}

std::vector<std::string> part_paths(const std::string& path) {
  const std::size_t length = suffix(1, 1).size();
  const std::string_view end = path.size() < length ? "" : std::string_view(path).substr(path.size() - length);
  std::uint64_t number = 0, count = 0;
  const auto read = [end](std::size_t at, std::uint64_t& value) {
    return end.size() >= at + 5 && std::from_chars(end.data() + at, end.data() + at + 5, value).ec == std::errc();
  };
  const std::string_view head = "-", middle = "-of-";
  if (!read(head.size(), number) || !read(head.size() + 5 + middle.size(), count)) return {path};
  if (count > kMaxParts || end != suffix(number, count)) return {path};
  std::vector<std::string> paths;
  const std::string stem = path.substr(0, path.size() - length);
  for (std::uint64_t i = 1; i <= count; ++i) paths.push_back(stem + suffix(i, count));
  return paths;
}

Status require_unsplit(const GgufPart& part) {
  NIBBLE_ASSIGN(const std::optional<std::uint64_t> count, find_uint(part, "split.count"));
  if (count.value_or(1) == 1) return ok_status();
  return fault(part, "a part of a split model cannot be read by itself", "split.count", std::to_string(*count), "1");
}

}  // namespace nibble
