// One step of the model: what its ops launch, in order. Launches are recorded and run together at the end; a step whose
// record equals an earlier one is replayed as a CUDA graph, and only its staged inputs (tokens, positions, caches)
// differ.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/linear_nvfp4.h"

namespace nibble::kernels::cuda {

// Bytes that the step needs from the host, and flags that go back.
struct CopyArgs {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
  bool operator==(const CopyArgs&) const = default;
};
struct ClearArgs {
  void* memory = nullptr;
  std::size_t bytes = 0;
  bool operator==(const ClearArgs&) const = default;
};
cudaError_t launch(const CopyArgs& args, cudaStream_t stream);
cudaError_t launch(const ClearArgs& args, cudaStream_t stream);
inline cudaError_t launch(const Nvfp4LinearArgs& args, cudaStream_t stream) {
  return linear_nvfp4(args, stream);
}

// A launch by value: a struct of kernels.h and what to do with it.
class Command {
 public:
  template <typename Args>
  Command(const char* name, const Args& args, std::array<int, 4> shape)
      : name_(name), shape_(shape), launch_(&launch_as<Args>), equal_(&equal_as<Args>) {
    static_assert(sizeof(Args) <= sizeof(args_) && std::is_trivially_copyable_v<Args>);
    new (args_) Args(args);
  }
  Status run(cudaStream_t stream) const;
  bool operator==(const Command& other) const { return equal_ == other.equal_ && equal_(args_, other.args_); }

 private:
  template <typename Args>
  static cudaError_t launch_as(const void* args, cudaStream_t stream) {
    return launch(*static_cast<const Args*>(args), stream);
  }
  template <typename Args>
  static bool equal_as(const void* a, const void* b) {
    return *static_cast<const Args*>(a) == *static_cast<const Args*>(b);
  }

  const char* name_;
  std::array<int, 4> shape_;  // for error messages
  cudaError_t (*launch_)(const void*, cudaStream_t);
  bool (*equal_)(const void*, const void*);
  alignas(8) std::byte args_[320];
};

class Step {
 public:
  Step(const Stream& stream, bool use_graphs);
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step();

  void begin(int n_flags);
  // Runs what was recorded and waits. Element i: flag i was raised; none where a call failed.
  std::span<const std::uint8_t> end();
  bool is_open() const { return is_open_; }

  // The first call that failed. From then on steps record nothing and do nothing.
  const Status& status() const { return status_; }
  void fail(Error error);

  Flags flags(int first) const { return {device_flags_.as<std::uint8_t>(), n_flags_, first}; }
  // Copies values to where the step's kernels will find them.
  template <typename T>
  const T* stage(std::span<const T> values) {
    return static_cast<const T*>(stage_bytes(std::as_bytes(values)));
  }
  template <typename Args>
  void record(const char* name, const Args& args, std::array<int, 4> shape) {
    if (status_.ok()) commands_.emplace_back(name, args, shape);
  }

  int n_replayed() const { return n_replayed_; }  // steps that ran as a graph

 private:
  struct Recorded {
    std::vector<Command> commands;
    cudaGraphExec_t graph = nullptr;  // made when the record comes a second time
  };
  static constexpr std::size_t kMaxRecorded = 32;

  const void* stage_bytes(std::span<const std::byte> bytes);
  Status reserve(std::size_t staged, std::size_t n_flags);
  Status run_commands(const std::vector<Command>& commands) const;
  Result<cudaGraphExec_t> capture(const std::vector<Command>& commands) const;
  Status run_or_replay();

  const Stream& stream_;
  bool use_graphs_;
  Status status_;
  bool is_open_ = false;
  int n_flags_ = 0;
  int n_replayed_ = 0;
  std::vector<Command> commands_;
  std::list<Recorded> recorded_;  // latest first
  PinnedMemory staged_;
  DeviceMemory device_staged_;
  std::size_t n_staged_ = 0;
  std::span<const std::byte> last_staged_;
  const void* last_staged_at_ = nullptr;
  PinnedMemory flags_;
  DeviceMemory device_flags_;
};

}  // namespace nibble::kernels::cuda
