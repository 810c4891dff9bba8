// GGUF v2/v3, little endian, read through a memory map: every count, offset, product, alignment and overlap is checked
// before use, duplicate keys and names are refused, and nothing is copied. All views live as long as the GgufFile.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "io/gguf_value.h"
#include "tensor/tensor_view.h"

namespace nibble {

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

// What one file on disk holds; the parts of a split model are one each.
struct GgufPart {
  std::string path;
  MappedFile map;  // empty when the bytes belong to the caller
  std::span<const std::byte> bytes;
  std::uint32_t version = 0;
  std::uint64_t alignment = 0;
  std::vector<GgufEntry> metadata;  // in file order
  std::vector<TensorView> tensors;  // in file order

  const GgufValue* find_value(std::string_view key) const;
};

class GgufFile {
 public:
  // Opens a model; of a split model (NAME-00001-of-0000N.gguf) the first part, and it finds the others beside it.
  static Result<GgufFile> open(const std::string& path);
  // Parses bytes that outlive the result; `name` stands for the path in messages. A part of a split model is refused.
  static Result<GgufFile> from_memory(std::span<const std::byte> bytes, const std::string& name);

  const std::string& path() const { return parts_.front().path; }
  const std::vector<GgufPart>& parts() const { return parts_; }
  std::uint64_t file_bytes() const;  // of all parts

  // Lets bytes of the file that will not be needed soon stop counting as resident. Nothing happens to a caller's bytes.
  void release(std::span<const std::byte> bytes) const;
  // Refuses if a file was written to since it was opened: what was computed may be of other bytes than are there now.
  Status check_unchanged() const;

  const std::vector<GgufEntry>& metadata() const { return parts_.front().metadata; }
  const std::vector<TensorView>& tensors() const { return tensors_; }  // of all parts, in order
  const TensorView* find_tensor(std::string_view name) const;
  const std::string& path_of(const TensorView& tensor) const;  // the part that holds it

  // Metadata by key. Absent is nullopt; present with another type, or not fitting, is an Error.
  const GgufValue* find_value(std::string_view key) const;
  Result<std::optional<std::uint64_t>> find_uint(std::string_view key) const;
  Result<std::optional<double>> find_float(std::string_view key) const;
  Result<std::optional<bool>> find_bool(std::string_view key) const;
  Result<std::optional<std::string_view>> find_string(std::string_view key) const;
  Result<std::optional<std::vector<std::string_view>>> find_strings(std::string_view key) const;
  Result<std::optional<std::vector<std::int64_t>>> find_ints(std::string_view key) const;
  Result<std::optional<std::vector<double>>> find_floats(std::string_view key) const;

  // The same where absence is an Error as well.
  Result<std::uint64_t> require_uint(std::string_view key) const;
  Result<double> require_float(std::string_view key) const;
  Result<std::string_view> require_string(std::string_view key) const;
  Result<TensorView> require_tensor(std::string_view name) const;

 private:
  static Result<GgufFile> assemble(std::vector<GgufPart> parts);

  std::vector<GgufPart> parts_;
  std::vector<TensorView> tensors_;
  std::vector<std::uint32_t> by_name_;  // indices of tensors_, sorted by name
};

}  // namespace nibble
