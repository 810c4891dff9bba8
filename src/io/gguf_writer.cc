#include "io/gguf_writer.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace nibble {
namespace {

constexpr std::uint32_t kMagic = 0x46554747;
constexpr std::uint32_t kVersion = 3;

std::uint64_t aligned(std::uint64_t size) {
  return (size + GgufWriter::kAlignment - 1) / GgufWriter::kAlignment * GgufWriter::kAlignment;
}

void put_bytes(std::vector<std::byte>& to, const void* from, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(from);
  to.insert(to.end(), bytes, bytes + size);
}

template <typename T>
void put_scalar(std::vector<std::byte>& to, T value) {
  put_bytes(to, &value, sizeof value);
}

void put_string(std::vector<std::byte>& to, std::string_view text) {
  put_scalar<std::uint64_t>(to, text.size());
  put_bytes(to, text.data(), text.size());
}

}  // namespace

void GgufWriter::put_key(std::string_view key, GgufType type) {
  NIBBLE_CHECK(!file_, "metadata after begin()");
  keys_.emplace_back(key);
  put_string(metadata_, key);
  put_scalar(metadata_, static_cast<std::uint32_t>(type));
}

void GgufWriter::add_u32(std::string_view key, std::uint32_t value) {
  put_key(key, GgufType::kU32);
  put_scalar(metadata_, value);
}

void GgufWriter::add_f32(std::string_view key, float value) {
  put_key(key, GgufType::kF32);
  put_scalar(metadata_, value);
}

void GgufWriter::add_bool(std::string_view key, bool value) {
  put_key(key, GgufType::kBool);
  put_scalar<std::uint8_t>(metadata_, value ? 1 : 0);
}

void GgufWriter::add_string(std::string_view key, std::string_view value) {
  put_key(key, GgufType::kString);
  put_string(metadata_, value);
}

void GgufWriter::add_strings(std::string_view key, std::span<const std::string_view> values) {
  put_key(key, GgufType::kArray);
  put_scalar(metadata_, static_cast<std::uint32_t>(GgufType::kString));
  put_scalar<std::uint64_t>(metadata_, values.size());
  for (std::string_view value : values) put_string(metadata_, value);
}

void GgufWriter::add_value(std::string_view key, const GgufValue& value) {
  put_key(key, value.type());
  put_bytes(metadata_, value.encoding().data(), value.encoding().size());
}

void GgufWriter::declare_tensor(std::string_view name, DType dtype, const Shape& shape) {
  NIBBLE_CHECK(!file_, "a tensor declared after begin()");
  const std::optional<std::uint64_t> bytes = checked_bytes(dtype, shape);
  NIBBLE_CHECK(bytes.has_value(), "a tensor whose size overflows or whose rows are not whole blocks");
  tensors_.push_back({std::string(name), dtype, shape, *bytes});
}

std::vector<std::byte> GgufWriter::header() const {
  std::vector<std::byte> out;
  put_scalar(out, kMagic);
  put_scalar(out, kVersion);
  put_scalar<std::uint64_t>(out, tensors_.size());
  put_scalar<std::uint64_t>(out, keys_.size());
  put_bytes(out, metadata_.data(), metadata_.size());
  std::uint64_t offset = 0;
  for (const Declared& tensor : tensors_) {
    put_string(out, tensor.name);
    put_scalar(out, static_cast<std::uint32_t>(tensor.shape.rank()));
    for (std::size_t i = 0; i < tensor.shape.rank(); ++i) put_scalar<std::uint64_t>(out, tensor.shape.dim(i));
    put_scalar(out, static_cast<std::uint32_t>(tensor.dtype));
    put_scalar(out, offset);
    offset += aligned(tensor.bytes);
  }
  out.resize(aligned(out.size()));
  return out;
}

std::uint64_t GgufWriter::total_bytes() const {
  std::uint64_t total = header().size();
  for (const Declared& tensor : tensors_) total += aligned(tensor.bytes);
  return total;
}

Status GgufWriter::begin(const std::string& path) {
  const auto unique = [](std::vector<std::string> names) {
    std::sort(names.begin(), names.end());
    return std::adjacent_find(names.begin(), names.end()) == names.end();
  };
  std::vector<std::string> names;
  for (const Declared& tensor : tensors_) names.push_back(tensor.name);
  NIBBLE_CHECK(unique(keys_) && unique(std::move(names)), "a key or a tensor name twice");
  NIBBLE_ASSIGN(AtomicFile file, AtomicFile::create(path));
  file_ = std::move(file);
  return file_->write(header());
}

Status GgufWriter::append(std::string_view name, std::span<const std::byte> bytes) {
  NIBBLE_CHECK(file_ && current_ < tensors_.size(), "append() before begin() or after the last tensor");
  const Declared& tensor = tensors_[current_];
  NIBBLE_CHECK(tensor.name == name, "tensor data out of the declared order");
  NIBBLE_CHECK(bytes.size() <= tensor.bytes - filled_, "more data than the tensor was declared with");
  NIBBLE_TRY(file_->write(bytes));
  filled_ += bytes.size();
  if (filled_ < tensor.bytes) return ok_status();
  static constexpr std::array<std::byte, kAlignment> kZeros = {};
  NIBBLE_TRY(file_->write(std::span(kZeros).first(aligned(filled_) - filled_)));
  ++current_;
  filled_ = 0;
  return ok_status();
}

Status GgufWriter::finish() {
  NIBBLE_CHECK(file_ && current_ == tensors_.size(), "finish() before all tensors have their data");
  return file_->commit();
}

}  // namespace nibble
