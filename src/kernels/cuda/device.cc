#include "kernels/cuda/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/cuda/kernels.h"

namespace nibble::kernels::cuda {
namespace {

constexpr int kOldestMajor = 8;
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

std::string version(int v) {
  return fmt::format("{}.{}", v / 1000, v % 1000 / 10);
}

std::string current_device() {
  int index = 0;
  cudaDeviceProp properties{};
  if (cudaGetDevice(&index) != cudaSuccess || cudaGetDeviceProperties(&properties, index) != cudaSuccess) {
    return "no device";
  }
  return fmt::format("{} (device {})", properties.name, index);
}

Error unusable(std::string message, std::string found, std::string expected, std::string hint) {
  return Error{.message = std::move(message),
               .found = std::move(found),
               .expected = std::move(expected),
               .hint = std::move(hint)};
}

// The runtime gives one status for a missing and for an old driver; its version tells them apart.
Error no_devices(cudaError_t status) {
  int driver = 0, runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
  const std::string wanted = fmt::format("a driver for CUDA {}", version(runtime));
  if (driver == 0) {
    return unusable("there is no NVIDIA driver", "no libcuda.so.1", wanted, "install the NVIDIA driver");
  }
  if (status == cudaErrorInsufficientDriver) {
    return unusable(fmt::format("the NVIDIA driver is too old: it knows CUDA {}", version(driver)), version(driver),
                    wanted, "update the NVIDIA driver");
  }
  return unusable(fmt::format("there is no NVIDIA GPU to be seen ({})", cudaGetErrorString(status)),
                  cudaGetErrorName(status), "a GPU of compute capability 8.0 or newer",
                  "look at nvidia-smi and at CUDA_VISIBLE_DEVICES");
}

}  // namespace

std::string Device::description() const {
  return fmt::format("{}, sm_{}{}, {} multiprocessors, {:.1f} GiB", name, major, minor, n_multiprocessors,
                     static_cast<double>(memory) / kGiB);
}

Result<Device> find_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) return no_devices(status == cudaSuccess ? cudaErrorNoDevice : status);
  cudaDeviceProp p{};
  if (const cudaError_t e = cudaGetDeviceProperties(&p, 0); e != cudaSuccess) return no_devices(e);
  const Device device{
      0, p.name, p.major, p.minor, p.multiProcessorCount, p.totalGlobalMem, static_cast<int>(p.sharedMemPerBlockOptin)};
  if (p.major < kOldestMajor) {
    return unusable(fmt::format("{} is too old for nibble's kernels", device.description()),
                    fmt::format("compute capability {}.{}", p.major, p.minor), "8.0 or newer (Ampere, 2020)", "");
  }
  if (const cudaError_t e = cudaSetDevice(0); e != cudaSuccess) return cuda_error("cudaSetDevice", "device 0", e);
  // A binary holds machine code for the architectures that it was built for; a kernel of ours answers for all.
  if (const cudaError_t e = probe_kernel_image(); e != cudaSuccess) {
    return unusable(fmt::format("this binary has no kernels for {}", device.description()), cudaGetErrorName(e),
                    fmt::format("kernels for sm_{}{}", p.major, p.minor),
                    fmt::format("build with -DNIBBLE_CUDA_ARCHITECTURES={}{}", p.major, p.minor));
  }
  return device;
}

Error cuda_error(const std::string& call, const std::string& what, cudaError_t status) {
  return Error{.message = fmt::format("{} failed on {}: {}", call, current_device(), cudaGetErrorString(status)),
               .found = fmt::format("{} ({})", cudaGetErrorName(status), what),
               .hint = "'nibble doctor' says what this machine has; {backend=cpu} gives the same answer"};
}

Status check(cudaError_t status, const char* call, const std::string& what) {
  if (status == cudaSuccess) return ok_status();
  return cuda_error(call, what, status);
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) cudaFree(data_);
}

Result<DeviceMemory> DeviceMemory::allocate(std::size_t bytes, const std::string& what) {
  DeviceMemory memory;
  const cudaError_t status = cudaMalloc(&memory.data_, std::max<std::size_t>(bytes, 1));
  if (status == cudaSuccess) {
    memory.size_ = bytes;
    return memory;
  }
  cudaGetLastError();  // an allocation that does not fit leaves the device usable
  std::size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  Error error = cuda_error("cudaMalloc", fmt::format("{} bytes for {}", bytes, what), status);
  error.expected = fmt::format("{} bytes free; {} of {} are", bytes, free, total);
  return error;
}

Result<PinnedMemory> PinnedMemory::allocate(std::size_t bytes) {
  PinnedMemory memory;
  NIBBLE_TRY(check(cudaMallocHost(&memory.data_, std::max<std::size_t>(bytes, 1)), "cudaMallocHost",
                   fmt::format("{} bytes", bytes)));
  memory.size_ = bytes;
  return memory;
}

PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

Result<Stream> Stream::create() {
  Stream stream;
  NIBBLE_TRY(check(cudaStreamCreateWithFlags(&stream.stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags",
                   "a stream"));
  return stream;
}
Stream::~Stream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}
Status Stream::wait() const {
  return check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

Uploader::~Uploader() {
  for (const Piece& piece : pieces_) {
    if (piece.travelled != nullptr) cudaEventDestroy(piece.travelled);
  }
}

Status Uploader::Piece::prepare() {
  if (memory.size() == 0) {
    NIBBLE_ASSIGN(memory, PinnedMemory::allocate(kPieceBytes));
  }
  if (travelled != nullptr) return ok_status();
  return check(cudaEventCreateWithFlags(&travelled, cudaEventDisableTiming), "cudaEventCreateWithFlags", "an upload");
}

Status Uploader::upload(void* destination, std::span<const std::byte> source) {
  auto* to = static_cast<std::byte*>(destination);
  while (!source.empty()) {
    const std::span<const std::byte> part = source.first(std::min(source.size(), kPieceBytes));
    const std::string what = fmt::format("{} bytes to the device", part.size());
    Piece& piece = pieces_[next_];
    next_ = (next_ + 1) % kPieces;
    NIBBLE_TRY(piece.prepare());
    NIBBLE_TRY(check(cudaEventSynchronize(piece.travelled), "cudaEventSynchronize", what));
    std::memcpy(piece.memory.data(), part.data(), part.size());
    NIBBLE_TRY(check(cudaMemcpyAsync(to, piece.memory.data(), part.size(), cudaMemcpyHostToDevice, stream_.get()),
                     "cudaMemcpyAsync", what));
    NIBBLE_TRY(check(cudaEventRecord(piece.travelled, stream_.get()), "cudaEventRecord", what));
    to += part.size();
    source = source.subspan(part.size());
  }
  return ok_status();
}

}  // namespace nibble::kernels::cuda
