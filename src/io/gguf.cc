#include "io/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/printable.h"
#include "io/gguf_parse.h"
#include "io/gguf_split.h"

namespace nibble {
namespace {

Error wrong_type(const GgufFile& file, std::string_view key, const GgufValue& value, std::string_view expected) {
  return Error{.message = fmt::format("the metadata value \"{}\" has the wrong type", printable(key)),
               .file = file.path(),
               .key = printable(key),
               .found = value.type_text(),
               .expected = std::string(expected)};
}

Error absent_key(const GgufFile& file, std::string_view key) {
  return Error{.message = fmt::format("the file has no metadata key \"{}\"", printable(key)),
               .file = file.path(),
               .key = printable(key),
               .found = "nothing",
               .expected = "a metadata key of this name"};
}

// The value of `key` through one of GgufValue's as_...() functions.
template <typename T>
Result<std::optional<T>> find_as(const GgufFile& file, std::string_view key, std::optional<T> (GgufValue::*as)() const,
                                 std::string_view expected) {
  const GgufValue* value = file.find_value(key);
  if (value == nullptr) return std::optional<T>();
  std::optional<T> converted = (value->*as)();
  if (!converted) return wrong_type(file, key, *value, expected);
  return converted;
}

template <typename T>
Result<T> require(const GgufFile& file, std::string_view key, Result<std::optional<T>> found) {
  if (!found.ok()) return std::move(found).error();
  if (!found->has_value()) return absent_key(file, key);
  return std::move(**found);
}

}  // namespace

Result<GgufFile> GgufFile::open(const std::string& path) {
  NIBBLE_ASSIGN(std::vector<GgufPart> parts, open_gguf_parts(path));
  return assemble(std::move(parts));
}

Result<GgufFile> GgufFile::from_memory(std::span<const std::byte> bytes, const std::string& name) {
  std::vector<GgufPart> parts;
  NIBBLE_ASSIGN(GgufPart part, parse_gguf_part(bytes, name));
  NIBBLE_TRY(require_unsplit(part));
  parts.push_back(std::move(part));
  return assemble(std::move(parts));
}

Result<GgufFile> GgufFile::assemble(std::vector<GgufPart> parts) {
  GgufFile file;
  file.parts_ = std::move(parts);
  for (const GgufPart& part : file.parts_) {
    file.tensors_.insert(file.tensors_.end(), part.tensors.begin(), part.tensors.end());
  }
  file.by_name_.resize(file.tensors_.size());
  std::iota(file.by_name_.begin(), file.by_name_.end(), 0U);
  const auto name_of = [&](std::uint32_t index) { return file.tensors_[index].name; };
  std::sort(file.by_name_.begin(), file.by_name_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return name_of(a) < name_of(b); });
  const auto twice = std::adjacent_find(file.by_name_.begin(), file.by_name_.end(),
                                        [&](std::uint32_t a, std::uint32_t b) { return name_of(a) == name_of(b); });
  if (twice != file.by_name_.end()) {
    const TensorView& tensor = file.tensors_[std::max(twice[0], twice[1])];
    return Error{.message = fmt::format("two parts of the model have a tensor called {}", printable(tensor.name)),
                 .file = file.path_of(tensor),
                 .tensor = printable(tensor.name)};
  }
  return file;
}

std::uint64_t GgufFile::file_bytes() const {
  std::uint64_t total = 0;
  for (const GgufPart& part : parts_) total += part.bytes.size();
  return total;
}

const TensorView* GgufFile::find_tensor(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](std::uint32_t index, std::string_view n) { return tensors_[index].name < n; });
  if (at == by_name_.end() || tensors_[*at].name != name) return nullptr;
  return &tensors_[*at];
}

Status GgufFile::check_unchanged() const {
  for (const GgufPart& part : parts_) {
    if (!part.map.bytes().empty()) NIBBLE_TRY(part.map.check_unchanged());
  }
  return ok_status();
}

void GgufFile::release(std::span<const std::byte> bytes) const {
  for (const GgufPart& part : parts_) {
    const std::span<const std::byte> mapped = part.map.bytes();
    if (mapped.empty() || std::less<>()(bytes.data(), mapped.data())) continue;
    const auto offset = static_cast<std::size_t>(bytes.data() - mapped.data());
    if (offset <= mapped.size() && bytes.size() <= mapped.size() - offset) release_pages(bytes);
  }
}

const std::string& GgufFile::path_of(const TensorView& tensor) const {
  for (const GgufPart& part : parts_) {
    if (std::less_equal<>()(part.bytes.data(), tensor.bytes.data()) &&
        std::less<>()(tensor.bytes.data(), part.bytes.data() + part.bytes.size())) {
      return part.path;
    }
  }
  return path();
}

const GgufValue* GgufFile::find_value(std::string_view key) const {
  return parts_.front().find_value(key);
}

Result<std::optional<std::uint64_t>> GgufFile::find_uint(std::string_view key) const {
  return find_as(*this, key, &GgufValue::as_uint, "an integer of 0 or more");
}
Result<std::optional<double>> GgufFile::find_float(std::string_view key) const {
  return find_as(*this, key, &GgufValue::as_float, "F32 or F64");
}
Result<std::optional<bool>> GgufFile::find_bool(std::string_view key) const {
  return find_as(*this, key, &GgufValue::as_bool, "BOOL");
}
Result<std::optional<std::string_view>> GgufFile::find_string(std::string_view key) const {
  return find_as(*this, key, &GgufValue::as_string, "STRING");
}
Result<std::optional<std::vector<std::string_view>>> GgufFile::find_strings(std::string_view key) const {
  return find_as(*this, key, &GgufValue::as_strings, "array of STRING");
}
Result<std::optional<std::vector<std::int64_t>>> GgufFile::find_ints(std::string_view key) const {
  return find_as(*this, key, &GgufValue::as_ints, "array of integers below 2^63");
}
Result<std::optional<std::vector<double>>> GgufFile::find_floats(std::string_view key) const {
  return find_as(*this, key, &GgufValue::as_floats, "array of F32 or F64");
}

Result<std::uint64_t> GgufFile::require_uint(std::string_view key) const {
  return require(*this, key, find_uint(key));
}
Result<double> GgufFile::require_float(std::string_view key) const {
  return require(*this, key, find_float(key));
}
Result<std::string_view> GgufFile::require_string(std::string_view key) const {
  return require(*this, key, find_string(key));
}
Result<TensorView> GgufFile::require_tensor(std::string_view name) const {
  if (const TensorView* tensor = find_tensor(name)) return *tensor;
  return Error{.message = fmt::format("the file has no tensor \"{}\"", printable(name)),
               .file = path(),
               .tensor = printable(name),
               .found = "nothing",
               .expected = "a tensor of this name"};
}

}  // namespace nibble
