// A metadata value of a GGUF file: a view of its encoding in the file, already checked to lie inside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

enum class GgufType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

std::string_view gguf_type_name(GgufType type);
std::size_t gguf_scalar_bytes(GgufType type);  // 0 for strings and arrays

class GgufValue {
 public:
  // `encoding` is the value as it stands in a file after its type id, wholly checked by the reader.
  GgufValue(GgufType type, std::span<const std::byte> encoding) : type_(type), encoding_(encoding) {}

  GgufType type() const { return type_; }
  std::span<const std::byte> encoding() const { return encoding_; }
  std::string type_text() const;  // "U32", "array of STRING"

  // Scalars; nullopt where the type differs or the value does not fit. Any integer type serves as an integer, F32 and
  // F64 as a float.
  std::optional<std::uint64_t> as_uint() const;
  std::optional<std::int64_t> as_int() const;
  std::optional<double> as_float() const;
  std::optional<bool> as_bool() const;
  std::optional<std::string_view> as_string() const;

  // Arrays; nullopt where the value is not an array of such elements. The strings point into the file.
  std::optional<std::vector<std::string_view>> as_strings() const;
  std::optional<std::vector<std::int64_t>> as_ints() const;
  std::optional<std::vector<double>> as_floats() const;
  std::optional<std::vector<bool>> as_bools() const;

  // Of arrays only; an array's elements may be arrays.
  GgufType element_type() const;
  std::uint64_t size() const;
  std::vector<GgufValue> elements() const;

 private:
  GgufType type_;
  std::span<const std::byte> encoding_;
};

}  // namespace nibble
