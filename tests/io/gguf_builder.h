// Writes GGUF bytes field by field, right or wrong as a test asks; shares no code with nibble's writer or reader.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace nibble::testing {

class Bytes {
 public:
  template <typename T>
  Bytes& put(T value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    data_.insert(data_.end(), from, from + sizeof value);
    return *this;
  }
  Bytes& text(const std::string& value) {
    put<std::uint64_t>(value.size());
    return raw(value);
  }
  Bytes& raw(const std::string& value) {
    const auto* from = reinterpret_cast<const std::byte*>(value.data());
    data_.insert(data_.end(), from, from + value.size());
    return *this;
  }
  Bytes& append(const Bytes& other) {
    data_.insert(data_.end(), other.data_.begin(), other.data_.end());
    return *this;
  }
  Bytes& pad(std::size_t alignment) {
    while (data_.size() % alignment != 0) data_.push_back(std::byte{0});
    return *this;
  }
  Bytes& resize(std::size_t size) {
    data_.resize(size);
    return *this;
  }
  std::size_t size() const { return data_.size(); }
  std::span<const std::byte> span() const { return data_; }
  std::vector<std::byte>& data() { return data_; }

 private:
  std::vector<std::byte> data_;
};

inline Bytes bytes_of_floats(const std::vector<float>& values) {
  Bytes bytes;
  for (float value : values) bytes.put(value);
  return bytes;
}

// Tensors are laid out in the order of add_tensor, aligned, unless a record's offset is given.
class GgufBuilder {
 public:
  std::uint32_t magic = 0x46554747;
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;
  std::uint64_t extra_entries = 0;  // announced beyond those added
  std::uint64_t extra_tensors = 0;

  GgufBuilder& add_entry(const std::string& key, std::uint32_t type, const Bytes& value) {
    entries_.text(key).put(type).append(value);
    ++n_entries_;
    return *this;
  }
  GgufBuilder& add_u32(const std::string& key, std::uint32_t value) { return add_entry(key, 4, Bytes().put(value)); }
  GgufBuilder& add_string(const std::string& key, const std::string& value) {
    return add_entry(key, 8, Bytes().text(value));
  }
  GgufBuilder& add_tensor(const std::string& name, std::uint32_t type, const std::vector<std::uint64_t>& dims,
                          const Bytes& data) {
    return add_tensor_at(name, type, dims, data_.pad(alignment).size(), data);
  }
  GgufBuilder& add_tensor_at(const std::string& name, std::uint32_t type, const std::vector<std::uint64_t>& dims,
                             std::uint64_t offset, const Bytes& data) {
    records_.text(name).put<std::uint32_t>(static_cast<std::uint32_t>(dims.size()));
    for (std::uint64_t dim : dims) records_.put(dim);
    records_.put(type).put(offset);
    data_.append(data);
    ++n_tensors_;
    return *this;
  }

  Bytes build() const {
    Bytes file;
    file.put(magic).put(version).put(n_tensors_ + extra_tensors).put(n_entries_ + extra_entries);
    file.append(entries_).append(records_).pad(alignment).append(data_);
    return file;
  }

 private:
  Bytes entries_;
  Bytes records_;
  Bytes data_;
  std::uint64_t n_entries_ = 0;
  std::uint64_t n_tensors_ = 0;
};

}  // namespace nibble::testing
