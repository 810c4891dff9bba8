// Writes GGUF v3, tensor by tensor: declare all metadata and tensors, begin(), append the data in the order of the
// declarations in pieces of any size, finish(). The file appears under its name only then (base/atomic_file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/result.h"
#include "io/gguf_value.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace nibble {

class GgufWriter {
 public:
  static constexpr std::uint64_t kAlignment = 32;  // GGUF's default, which needs no key in the file

  // Keys and tensor names must be unique; their order in the file is the order of the calls.
  void add_u32(std::string_view key, std::uint32_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_string(std::string_view key, std::string_view value);
  void add_strings(std::string_view key, std::span<const std::string_view> values);
  void add_value(std::string_view key, const GgufValue& value);  // a value of another file, copied as it is
  void declare_tensor(std::string_view name, DType dtype, const Shape& shape);

  Status begin(const std::string& path);
  Status append(std::string_view name, std::span<const std::byte> bytes);  // `name` is the tensor whose turn it is
  Status finish();

  std::uint64_t total_bytes() const;  // of the finished file; final once all is declared

 private:
  struct Declared {
    std::string name;
    DType dtype;
    Shape shape;
    std::uint64_t bytes;
  };

  void put_key(std::string_view key, GgufType type);
  std::vector<std::byte> header() const;  // padded to the start of the data

  std::vector<std::byte> metadata_;
  std::vector<std::string> keys_;
  std::vector<Declared> tensors_;
  std::optional<AtomicFile> file_;
  std::size_t current_ = 0;   // tensor that append() fills
  std::uint64_t filled_ = 0;  // bytes of it that are written
};

}  // namespace nibble
