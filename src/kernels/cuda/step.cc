#include "kernels/cuda/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nibble::kernels::cuda {
namespace {

constexpr std::size_t kStageAlign = 256;
constexpr std::size_t kStagedPerFlag = 128;  // tokens, rows and indices of a step, twice over
constexpr std::size_t kStagedAtLeast = std::size_t{64} << 10;
constexpr std::size_t kUpload = 0;  // index of the command that uploads what was staged

}  // namespace

cudaError_t launch(const CopyArgs& a, cudaStream_t stream) {
  return a.bytes == 0 ? cudaSuccess : cudaMemcpyAsync(a.to, a.from, a.bytes, cudaMemcpyDefault, stream);
}
cudaError_t launch(const ClearArgs& a, cudaStream_t stream) {
  return a.bytes == 0 ? cudaSuccess : cudaMemsetAsync(a.memory, 0, a.bytes, stream);
}

void Command::run(cudaStream_t stream) const {
  const cudaError_t status = launch_(args_, stream);
  if (status != cudaSuccess) [[unlikely]]
    must(status, name_, fmt::format("shape {}", fmt::join(shape_, " x ")));
}

Step::Step(const Stream& stream, bool use_graphs) : stream_(stream), use_graphs_(use_graphs) {}

Step::~Step() {
  for (const Recorded& r : recorded_) {
    if (r.graph != nullptr) cudaGraphExecDestroy(r.graph);
  }
}

void Step::reserve(std::size_t staged, std::size_t n_flags) {
  if (staged_.size() < staged) {
    staged_ = PinnedMemory(staged);
    device_staged_ = must_allocate(staged, "the inputs of a step");
  }
  if (flags_.size() < n_flags) {
    flags_ = PinnedMemory(n_flags);
    device_flags_ = must_allocate(n_flags, "the flags of a step");
  }
}

void Step::begin(int n_flags) {
  NIBBLE_CHECK(!is_open_, "a step has begun already");
  is_open_ = true;
  n_flags_ = n_flags;
  n_staged_ = 0;
  last_staged_at_ = nullptr;
  const auto flag_bytes = static_cast<std::size_t>(n_flags);
  reserve(kStagedAtLeast + kStagedPerFlag * flag_bytes, flag_bytes);
  commands_.clear();
  record("cudaMemcpyAsync", CopyArgs{}, {});  // kUpload; end() knows how much
  record("cudaMemsetAsync", ClearArgs{device_flags_.as<void>(), flag_bytes}, {n_flags, 1, 1, 1});
}

const void* Step::stage_bytes(std::span<const std::byte> bytes) {
  // Every layer brings the same rows.
  if (last_staged_at_ != nullptr && std::ranges::equal(bytes, last_staged_)) return last_staged_at_;
  NIBBLE_CHECK(n_staged_ + bytes.size() <= staged_.size(), "a step has more inputs than its flags announced");
  std::memcpy(staged_.data() + n_staged_, bytes.data(), bytes.size());
  last_staged_ = {staged_.data() + n_staged_, bytes.size()};
  last_staged_at_ = device_staged_.as<std::byte>() + n_staged_;
  n_staged_ += (bytes.size() + kStageAlign - 1) / kStageAlign * kStageAlign;
  return last_staged_at_;
}

void Step::run_commands(const std::vector<Command>& commands) const {
  for (const Command& command : commands) command.run(stream_.get());
}

cudaGraphExec_t Step::capture(const std::vector<Command>& commands) const {
  must(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  run_commands(commands);
  cudaGraph_t graph = nullptr;
  must(cudaStreamEndCapture(stream_.get(), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t exec = nullptr;
  must(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate", fmt::format("{} launches", commands.size()));
  must(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return exec;
}

std::span<const std::uint8_t> Step::end() {
  const std::span<const std::uint8_t> raised(reinterpret_cast<const std::uint8_t*>(flags_.data()),
                                             static_cast<std::size_t>(n_flags_));
  if (!is_open_) return raised;  // asked a second time
  is_open_ = false;
  // What the kernels need goes before them, what they report after them; all of it is one record.
  const auto flag_bytes = static_cast<std::size_t>(n_flags_);
  commands_[kUpload] = Command("cudaMemcpyAsync", CopyArgs{device_staged_.as<void>(), staged_.data(), n_staged_},
                               {static_cast<int>(n_staged_), 1, 1, 1});
  record("cudaMemcpyAsync", CopyArgs{flags_.data(), device_flags_.as<void>(), flag_bytes}, {n_flags_, 1, 1, 1});

  const auto known = std::ranges::find(recorded_, commands_, &Recorded::commands);
  if (!use_graphs_ || known == recorded_.end()) {
    run_commands(commands_);
    if (use_graphs_) recorded_.push_front({commands_});
  } else {
    if (known->graph == nullptr) known->graph = capture(known->commands);
    must(cudaGraphLaunch(known->graph, stream_.get()), "cudaGraphLaunch");
    ++n_replayed_;
    recorded_.splice(recorded_.begin(), recorded_, known);
  }
  stream_.wait();
  if (recorded_.size() > kMaxRecorded) {
    if (recorded_.back().graph != nullptr) cudaGraphExecDestroy(recorded_.back().graph);
    recorded_.pop_back();
  }
  return raised;
}

}  // namespace nibble::kernels::cuda
