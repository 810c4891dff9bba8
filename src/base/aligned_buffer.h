// A zero-initialised array of a trivial type, aligned to a cache line, so that vector loads never straddle its start.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "base/out_of_memory.h"

namespace nibble {

template <typename T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  static constexpr std::size_t kAlignment = 64;

  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size) : size_(size) {
    if (size == 0) return;
    if (size > (SIZE_MAX - kAlignment) / sizeof(T)) throw OutOfMemory(SIZE_MAX);
    // calloc, because a large block then costs memory only where it is touched: a KV cache grows with its sequence.
    memory_.reset(std::calloc(size * sizeof(T) + kAlignment, 1));
    if (memory_ == nullptr) throw OutOfMemory(size * sizeof(T));
    void* start = memory_.get();
    std::size_t room = size * sizeof(T) + kAlignment;
    data_ = static_cast<T*>(std::align(kAlignment, size * sizeof(T), start, room));
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : memory_(std::move(other.memory_)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    memory_ = std::move(other.memory_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::span<T> span() { return {data(), size_}; }
  std::span<const T> span() const { return {data(), size_}; }

 private:
  struct Free {
    void operator()(void* pointer) const { std::free(pointer); }
  };
  std::unique_ptr<void, Free> memory_;
  T* data_ = nullptr;  // into memory_
  std::size_t size_ = 0;
};

}  // namespace nibble
