// The runtime's calls: a device whose memory is the host's, poisoned where it is fresh and watched at its ends.
#include <cuda.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/cuda_emulation/sanitizer.h"

using nibble::cuda_emulation::allow;
using nibble::cuda_emulation::breach;
using nibble::cuda_emulation::forbid;
using nibble::cuda_emulation::gpu;

struct EmulatedGraph {
  std::vector<std::function<void()>> work;
};
struct EmulatedStream {
  EmulatedGraph* capture = nullptr;
};
struct EmulatedEvent {
  std::chrono::steady_clock::time_point at;
};

namespace {

constexpr std::size_t kTotalBytes = std::size_t{8} << 30;
constexpr std::size_t kAlign = 256, kGuard = 256;
constexpr std::size_t kSharedBytesWithoutAsking = std::size_t{48} << 10;
constexpr unsigned char kGuardByte = 0xA5;
constexpr int kPoison = 0xFF;
constexpr int kVersion = 13000;

int shared_bytes_of_gpu() {
  return gpu().capability == 80 ? 163 << 10 : gpu().capability >= 90 ? 227 << 10 : 99 << 10;
}

struct Memory {
  std::mutex mutex;
  std::map<void*, std::size_t> device;
  std::size_t used = 0;
  std::map<const void*, std::size_t> shared_limits;  // of kernels
};
Memory& memory() {
  static auto* const the_memory = new Memory;
  return *the_memory;
}

// A call that a test wants to fail.
std::atomic<int>& until_failure() {
  static std::atomic<int> n = 0;
  return n;
}
cudaError_t failure() {
  if (until_failure() == 0) return cudaSuccess;
  return --until_failure() == 0 ? cudaErrorUnknown : cudaSuccess;
}

bool is_lost() {
  return nibble::cuda_emulation::fault() == nibble::cuda_emulation::Fault::kLost;
}

// What every call says that would notice it.
cudaError_t state_of_gpu() {
  if (failure() != cudaSuccess) return cudaErrorUnknown;
  return is_lost() ? cudaErrorIllegalAddress : cudaSuccess;
}

cudaError_t do_or_record(cudaStream_t stream, std::function<void()> work) {
  if (failure() != cudaSuccess) return cudaErrorUnknown;
  if (is_lost()) return cudaSuccess;  // only those who wait are told
  if (stream != nullptr && stream->capture != nullptr) {
    stream->capture->work.push_back(std::move(work));
  } else {
    work();
  }
  return cudaSuccess;
}

bool is_a_grid(const dim3& grid, const dim3& block) {
  const std::size_t threads = std::size_t{block.x} * block.y * block.z;
  return grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x < 1u << 31 && grid.y < 1u << 16 && grid.z < 1u << 16 &&
         threads >= 1 && threads <= 1024;
}

}  // namespace

namespace nibble::cuda_emulation {

void set_failing_call(int n) {
  until_failure() = n;
}
int calls_until_failure() {
  return until_failure();
}
std::size_t used_bytes() {
  const std::scoped_lock lock(memory().mutex);
  return memory().used;
}

cudaError_t set_attribute(const void* kernel, cudaFuncAttribute, int value) {
  if (failure() != cudaSuccess) return cudaErrorUnknown;
  if (value < 0 || value > shared_bytes_of_gpu()) return cudaErrorInvalidValue;
  const std::scoped_lock lock(memory().mutex);
  memory().shared_limits[kernel] = static_cast<std::size_t>(value);
  return cudaSuccess;
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> run) {
  if (!is_a_grid(config.gridDim, config.blockDim)) return cudaErrorInvalidConfiguration;
  if (config.blockDim.x * config.blockDim.y * config.blockDim.z % kWarp != 0) breach("a block of part of a warp");
  Grid grid{{config.gridDim.x, config.gridDim.y, config.gridDim.z},
            {config.blockDim.x, config.blockDim.y, config.blockDim.z},
            config.dynamicSmemBytes};
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (gpu().capability < 90) return cudaErrorNotSupported;
    if (config.attrs[i].id == cudaLaunchAttributeClusterDimension) grid.cluster = config.attrs[i].val.clusterDim.x;
  }
  if (grid.cluster > 8 || grid.blocks.x % grid.cluster != 0) return cudaErrorInvalidConfiguration;
  {
    const std::scoped_lock lock(memory().mutex);
    const auto limit = memory().shared_limits.find(kernel);
    const std::size_t most = limit == memory().shared_limits.end() ? kSharedBytesWithoutAsking
                                                                   : std::max(limit->second, kSharedBytesWithoutAsking);
    if (grid.shared_bytes > most) return cudaErrorInvalidValue;
  }
  return do_or_record(config.stream, [grid, run = std::move(run)] { run_grid(grid, run); });
}

}  // namespace nibble::cuda_emulation

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    case cudaErrorUnknown:
      return "cudaErrorUnknown";
    default:
      return "another error";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {};
  std::strcpy(p->name, "emulated CUDA");  // NOLINT: it fits
  p->major = gpu().capability / 10;
  p->minor = gpu().capability % 10;
  p->multiProcessorCount = gpu().n_multiprocessors;
  p->totalGlobalMem = kTotalBytes;
  p->sharedMemPerBlockOptin = static_cast<std::size_t>(shared_bytes_of_gpu());
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = gpu().n_multiprocessors;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = shared_bytes_of_gpu();
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = gpu().capability / 10;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = gpu().capability % 10;
      break;
  }
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  if (const cudaError_t state = state_of_gpu(); state != cudaSuccess) return state;
  Memory& m = memory();
  const std::scoped_lock lock(m.mutex);
  if (bytes > kTotalBytes - m.used) return cudaErrorMemoryAllocation;
  if (posix_memalign(out, kAlign, bytes + kGuard) != 0) return cudaErrorMemoryAllocation;
  std::memset(*out, kPoison, bytes);
  std::memset(static_cast<char*>(*out) + bytes, kGuardByte, kGuard);
  forbid(static_cast<char*>(*out) + bytes, kGuard);
  m.device[*out] = bytes;
  m.used += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* freed) {
  if (freed == nullptr) return cudaSuccess;
  Memory& m = memory();
  const std::scoped_lock lock(m.mutex);
  const auto known = m.device.find(freed);
  if (known == m.device.end()) breach("cudaFree of what cudaMalloc did not give");
  const auto* guard = static_cast<const unsigned char*>(freed) + known->second;
  allow(guard, kGuard);
  if (std::any_of(guard, guard + kGuard, [](unsigned char c) { return c != kGuardByte; })) {
    breach(fmt::format("a write beyond an allocation of {} bytes", known->second));
  }
  m.used -= known->second;
  m.device.erase(known);
  std::free(freed);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** out, std::size_t bytes) {
  if (const cudaError_t state = state_of_gpu(); state != cudaSuccess) return state;
  if (posix_memalign(out, kAlign, bytes) != 0) return cudaErrorMemoryAllocation;
  std::memset(*out, kPoison, bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* freed) {
  std::free(freed);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::scoped_lock lock(memory().mutex);
  *free = kTotalBytes - memory().used;
  *total = kTotalBytes;
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  if (failure() != cudaSuccess) return cudaErrorUnknown;
  *stream = new EmulatedStream;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return stream != nullptr && stream->capture != nullptr ? cudaErrorStreamCaptureUnsupported : state_of_gpu();
}
cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || stream->capture != nullptr) return cudaErrorInvalidValue;
  if (const cudaError_t state = state_of_gpu(); state != cudaSuccess) return state;
  stream->capture = new EmulatedGraph;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (stream == nullptr || stream->capture == nullptr) return cudaErrorInvalidValue;
  *graph = std::exchange(stream->capture, nullptr);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new EmulatedGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (stream != nullptr && stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  if (const cudaError_t state = state_of_gpu(); state != cudaSuccess) return state;
  for (const auto& work : exec->work) work();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return cudaGraphDestroy(exec);
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  if (failure() != cudaSuccess) return cudaErrorUnknown;
  *event = new EmulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  if (failure() != cudaSuccess) return cudaErrorUnknown;
  event->at = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return failure();
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return do_or_record(stream, [=] { std::memcpy(to, from, bytes); });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t stream) {
  return do_or_record(stream, [=] {
    for (std::size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
    }
  });
}
cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t stream) {
  return do_or_record(stream, [=] { std::memset(at, value, bytes); });
}
cudaError_t cudaMemset(void* at, int value, std::size_t bytes) {
  return cudaMemsetAsync(at, value, bytes, nullptr);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** entry, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *entry = reinterpret_cast<void*>(&cuTensorMapEncodeTiled);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
