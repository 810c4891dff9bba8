// The GPU: what it is, why it cannot be used, how its errors read, and its memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace nibble::kernels::cuda {

struct Device {
  int index = 0;
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int n_multiprocessors = 0;
  std::size_t memory = 0;
  int shared_bytes = 0;  // that a thread block may ask for

  std::string description() const;  // "NVIDIA H200, sm_90, 132 multiprocessors, 139.8 GiB"
};

// The first visible device, or why none can be used: no driver, too old a driver, no GPU, too old a GPU, none of ours.
Result<Device> find_device();

// The sentence of a failed call: what was called, on what, and what the runtime says.
Error cuda_error(const std::string& call, const std::string& what, cudaError_t status);

// The same as a value, ok where nothing failed.
Status check(cudaError_t status, const char* call, const std::string& what = {});

// Memory of the device. Empty after a move.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceMemory();

  // Refuses with what is wanted and what is free. `what` names the use: "weights of blk.0.ffn_up.weight".
  static Result<DeviceMemory> allocate(std::size_t bytes, const std::string& what);

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t size() const { return size_; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// Host memory that the device reads and writes on its own.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~PinnedMemory();
  static Result<PinnedMemory> allocate(std::size_t bytes);
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t size() const { return size_; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

class Stream {
 public:
  static Result<Stream> create();
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Stream();
  cudaStream_t get() const { return stream_; }
  Status wait() const;

 private:
  Stream() = default;
  cudaStream_t stream_ = nullptr;
};

// From pageable memory, such as a mapped file, through pinned pieces: one is filled while another travels.
class Uploader {
 public:
  explicit Uploader(const Stream& stream) : stream_(stream) {}
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;
  ~Uploader();
  // The source may go when this returns; the copy is complete when the stream gets there.
  Status upload(void* destination, std::span<const std::byte> source);

 private:
  static constexpr std::size_t kPieceBytes = std::size_t{16} << 20;
  static constexpr int kPieces = 3;
  struct Piece {
    PinnedMemory memory;
    cudaEvent_t travelled = nullptr;
    Status prepare();  // when it is used first
  };
  const Stream& stream_;
  Piece pieces_[kPieces];
  int next_ = 0;
};

}  // namespace nibble::kernels::cuda
