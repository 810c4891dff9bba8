#include "io/gguf_value.h"

#include <array>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace nibble {
namespace {

constexpr std::size_t kArrayHeader = 12;  // element type u32, count u64

struct TypeRow {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<TypeRow, 13> kTypes = {{{"U8", 1},
                                             {"I8", 1},
                                             {"U16", 2},
                                             {"I16", 2},
                                             {"U32", 4},
                                             {"I32", 4},
                                             {"F32", 4},
                                             {"BOOL", 1},
                                             {"STRING", 0},
                                             {"ARRAY", 0},
                                             {"U64", 8},
                                             {"I64", 8},
                                             {"F64", 8}}};

const TypeRow& row_of(GgufType type) {
  const auto index = static_cast<std::size_t>(type);
  NIBBLE_CHECK(index < kTypes.size(), "a GGUF value type outside of the table");
  return kTypes[index];
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// A scalar integer at `at`, as a sign and a magnitude wide enough for both U64 and I64.
struct Integer {
  bool negative;
  std::uint64_t bits;
};

std::optional<Integer> load_integer(GgufType type, const std::byte* at) {
  const auto from = [](std::int64_t value) { return Integer{value < 0, static_cast<std::uint64_t>(value)}; };
  switch (type) {
    case GgufType::kU8:
      return Integer{false, load<std::uint8_t>(at)};
    case GgufType::kU16:
      return Integer{false, load<std::uint16_t>(at)};
    case GgufType::kU32:
      return Integer{false, load<std::uint32_t>(at)};
    case GgufType::kU64:
      return Integer{false, load<std::uint64_t>(at)};
    case GgufType::kI8:
      return from(load<std::int8_t>(at));
    case GgufType::kI16:
      return from(load<std::int16_t>(at));
    case GgufType::kI32:
      return from(load<std::int32_t>(at));
    case GgufType::kI64:
      return from(load<std::int64_t>(at));
    default:
      return std::nullopt;
  }
}

std::optional<std::int64_t> to_int(std::optional<Integer> integer) {
  if (!integer || (!integer->negative && integer->bits > std::numeric_limits<std::int64_t>::max())) return std::nullopt;
  return static_cast<std::int64_t>(integer->bits);
}

std::optional<double> load_float(GgufType type, const std::byte* at) {
  if (type == GgufType::kF32) return load<float>(at);
  if (type == GgufType::kF64) return load<double>(at);
  return std::nullopt;
}

// Bytes of the value of `type` that starts at `at`, in an encoding that the reader has checked.
std::size_t encoded_size(GgufType type, const std::byte* at) {
  if (type == GgufType::kString) return 8 + load<std::uint64_t>(at);
  if (type != GgufType::kArray) return gguf_scalar_bytes(type);
  const auto element = static_cast<GgufType>(load<std::uint32_t>(at));
  const auto count = load<std::uint64_t>(at + 4);
  if (const std::size_t bytes = gguf_scalar_bytes(element)) return kArrayHeader + bytes * count;
  std::size_t size = kArrayHeader;
  for (std::uint64_t i = 0; i < count; ++i) size += encoded_size(element, at + size);
  return size;
}

// Applies `convert(element_type, pointer)` to every element of an array of scalars; nullopt when one conversion fails.
template <typename T, typename Convert>
std::optional<std::vector<T>> convert_scalars(const GgufValue& value, Convert convert) {
  if (value.type() != GgufType::kArray) return std::nullopt;
  const std::size_t stride = gguf_scalar_bytes(value.element_type());
  if (stride == 0) return std::nullopt;
  std::vector<T> out;
  out.reserve(value.size());
  const std::byte* at = value.encoding().data() + kArrayHeader;
  for (std::uint64_t i = 0; i < value.size(); ++i, at += stride) {
    const std::optional<T> element = convert(value.element_type(), at);
    if (!element) return std::nullopt;
    out.push_back(*element);
  }
  return out;
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  return row_of(type).name;
}

std::size_t gguf_scalar_bytes(GgufType type) {
  return row_of(type).bytes;
}

std::string GgufValue::type_text() const {
  if (type_ != GgufType::kArray) return std::string(gguf_type_name(type_));
  return "array of " + std::string(gguf_type_name(element_type()));
}

std::optional<std::uint64_t> GgufValue::as_uint() const {
  const std::optional<Integer> integer = load_integer(type_, encoding_.data());
  if (!integer || integer->negative) return std::nullopt;
  return integer->bits;
}

std::optional<std::int64_t> GgufValue::as_int() const {
  return to_int(load_integer(type_, encoding_.data()));
}

std::optional<double> GgufValue::as_float() const {
  return load_float(type_, encoding_.data());
}

std::optional<bool> GgufValue::as_bool() const {
  if (type_ != GgufType::kBool) return std::nullopt;
  return encoding_[0] != std::byte{0};
}

std::optional<std::string_view> GgufValue::as_string() const {
  if (type_ != GgufType::kString) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(encoding_.data()) + 8, encoding_.size() - 8);
}

std::optional<std::vector<std::string_view>> GgufValue::as_strings() const {
  if (type_ != GgufType::kArray || element_type() != GgufType::kString) return std::nullopt;
  std::vector<std::string_view> out;
  out.reserve(size());
  const std::byte* at = encoding_.data() + kArrayHeader;
  for (std::uint64_t i = 0; i < size(); ++i) {
    const auto length = load<std::uint64_t>(at);
    out.emplace_back(reinterpret_cast<const char*>(at) + 8, length);
    at += 8 + length;
  }
  return out;
}

std::optional<std::vector<std::int64_t>> GgufValue::as_ints() const {
  return convert_scalars<std::int64_t>(
      *this, [](GgufType type, const std::byte* at) { return to_int(load_integer(type, at)); });
}

std::optional<std::vector<double>> GgufValue::as_floats() const {
  return convert_scalars<double>(*this, load_float);
}

std::optional<std::vector<bool>> GgufValue::as_bools() const {
  return convert_scalars<bool>(*this, [](GgufType type, const std::byte* at) -> std::optional<bool> {
    if (type != GgufType::kBool) return std::nullopt;
    return *at != std::byte{0};
  });
}

GgufType GgufValue::element_type() const {
  NIBBLE_CHECK(type_ == GgufType::kArray, "element_type() of a value that is not an array");
  return static_cast<GgufType>(load<std::uint32_t>(encoding_.data()));
}

std::uint64_t GgufValue::size() const {
  NIBBLE_CHECK(type_ == GgufType::kArray, "size() of a value that is not an array");
  return load<std::uint64_t>(encoding_.data() + 4);
}

std::vector<GgufValue> GgufValue::elements() const {
  std::vector<GgufValue> out;
  out.reserve(size());
  std::size_t at = kArrayHeader;
  for (std::uint64_t i = 0; i < size(); ++i) {
    const std::size_t bytes = encoded_size(element_type(), encoding_.data() + at);
    out.emplace_back(element_type(), encoding_.subspan(at, bytes));
    at += bytes;
  }
  return out;
}

}  // namespace nibble
