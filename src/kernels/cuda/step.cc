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

Status Command::run(cudaStream_t stream) const {
  const cudaError_t status = launch_(args_, stream);
  if (status == cudaSuccess) [[likely]]
    return ok_status();
  return check(status, name_, fmt::format("shape {}", fmt::join(shape_, " x ")));
}

Step::Step(const Stream& stream, bool use_graphs) : stream_(stream), use_graphs_(use_graphs), status_(ok_status()) {}

Step::~Step() {
  for (const Recorded& r : recorded_) {
    if (r.graph != nullptr) cudaGraphExecDestroy(r.graph);
  }
}

// A fault of the GPU is noticed by whichever call waits for it first, so the message names a step and not a kernel.
// CUDA gives nothing back after most of them: the process can go on, this backend cannot.
void Step::fail(Error error) {
  if (!status_.ok()) return;
  error.message = fmt::format("the GPU failed in a step of {} launches: {}", commands_.size(), error.message);
  error.expected = "a step that ends; this backend cannot be used any more";
  error.hint =
      "start the program again; 'nibble doctor' says what this machine has; {backend=cpu} gives the same answer";
  status_ = std::move(error);
}

Status Step::reserve(std::size_t staged, std::size_t n_flags) {
  if (staged_.size() < staged) {
    NIBBLE_ASSIGN(staged_, PinnedMemory::allocate(staged));
    NIBBLE_ASSIGN(device_staged_, DeviceMemory::allocate(staged, "the inputs of a step"));
  }
  if (flags_.size() < n_flags) {
    NIBBLE_ASSIGN(flags_, PinnedMemory::allocate(n_flags));
    NIBBLE_ASSIGN(device_flags_, DeviceMemory::allocate(n_flags, "the flags of a step"));
  }
  return ok_status();
}

void Step::begin(int n_flags) {
  NIBBLE_CHECK(!is_open_, "a step has begun already");
  is_open_ = true;
  n_flags_ = n_flags;
  n_staged_ = 0;
  last_staged_at_ = nullptr;
  commands_.clear();
  if (!status_.ok()) return;
  const auto flag_bytes = static_cast<std::size_t>(n_flags);
  if (auto reserved = reserve(kStagedAtLeast + kStagedPerFlag * flag_bytes, flag_bytes); !reserved.ok()) {
    return fail(std::move(reserved).error());
  }
  record("cudaMemcpyAsync", CopyArgs{}, {});  // kUpload; end() knows how much
  record("cudaMemsetAsync", ClearArgs{device_flags_.as<void>(), flag_bytes}, {n_flags, 1, 1, 1});
}

const void* Step::stage_bytes(std::span<const std::byte> bytes) {
  if (!status_.ok()) return nullptr;
  // Every layer brings the same rows.
  if (last_staged_at_ != nullptr && std::ranges::equal(bytes, last_staged_)) return last_staged_at_;
  NIBBLE_CHECK(n_staged_ + bytes.size() <= staged_.size(), "a step has more inputs than its flags announced");
  std::memcpy(staged_.data() + n_staged_, bytes.data(), bytes.size());
  last_staged_ = {staged_.data() + n_staged_, bytes.size()};
  last_staged_at_ = device_staged_.as<std::byte>() + n_staged_;
  n_staged_ += (bytes.size() + kStageAlign - 1) / kStageAlign * kStageAlign;
  return last_staged_at_;
}

Status Step::run_commands(const std::vector<Command>& commands) const {
  for (const Command& command : commands) NIBBLE_TRY(command.run(stream_.get()));
  return ok_status();
}

Result<cudaGraphExec_t> Step::capture(const std::vector<Command>& commands) const {
  NIBBLE_TRY(check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture"));
  Status recorded = run_commands(commands);
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream_.get(), &graph);  // whatever was recorded
  NIBBLE_TRY(std::move(recorded));
  NIBBLE_TRY(check(ended, "cudaStreamEndCapture"));
  cudaGraphExec_t exec = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&exec, graph, 0);
  NIBBLE_TRY(check(cudaGraphDestroy(graph), "cudaGraphDestroy"));
  NIBBLE_TRY(check(made, "cudaGraphInstantiate", fmt::format("{} launches", commands.size())));
  return exec;
}

std::span<const std::uint8_t> Step::end() {
  const bool was_open = std::exchange(is_open_, false);  // otherwise asked a second time
  if (was_open && status_.ok()) {
    if (auto ran = run_or_replay(); !ran.ok()) fail(std::move(ran).error());
  }
  if (!status_.ok()) return {};
  return {reinterpret_cast<const std::uint8_t*>(flags_.data()), static_cast<std::size_t>(n_flags_)};
}

Status Step::run_or_replay() {
  // What the kernels need goes before them, what they report after them; all of it is one record.
  const auto flag_bytes = static_cast<std::size_t>(n_flags_);
  commands_[kUpload] = Command("cudaMemcpyAsync", CopyArgs{device_staged_.as<void>(), staged_.data(), n_staged_},
                               {static_cast<int>(n_staged_), 1, 1, 1});
  record("cudaMemcpyAsync", CopyArgs{flags_.data(), device_flags_.as<void>(), flag_bytes}, {n_flags_, 1, 1, 1});

  const auto known = std::ranges::find(recorded_, commands_, &Recorded::commands);
  if (!use_graphs_ || known == recorded_.end()) {
    NIBBLE_TRY(run_commands(commands_));
    if (use_graphs_) recorded_.push_front({commands_});
  } else {
    if (known->graph == nullptr) {
      NIBBLE_ASSIGN(known->graph, capture(known->commands));
    }
    NIBBLE_TRY(check(cudaGraphLaunch(known->graph, stream_.get()), "cudaGraphLaunch"));
    ++n_replayed_;
    recorded_.splice(recorded_.begin(), recorded_, known);
  }
  NIBBLE_TRY(stream_.wait());
  if (recorded_.size() > kMaxRecorded) {
    if (recorded_.back().graph != nullptr) cudaGraphExecDestroy(recorded_.back().graph);
    recorded_.pop_back();
  }
  return ok_status();
}

}  // namespace nibble::kernels::cuda
