// The state of the emulated GPU: the block that runs, its threads, and what they wait for. Of the emulator alone.
#pragma once

#include <array>
#include <boost/context/fiber.hpp>
#include <mutex>
#include <random>
#include <vector>

#include "tests/cuda_emulation/builtins.h"
#include "tests/cuda_emulation/sanitizer.h"

// Where the linker puts every __shared__ variable.
extern "C" {
extern unsigned char __start_nibble_shared[] __attribute__((weak));  // NOLINT
extern unsigned char __stop_nibble_shared[] __attribute__((weak));   // NOLINT
}

namespace nibble::cuda_emulation {

constexpr int kMaxThreads = 1024, kNamedBarriers = 16;
constexpr std::size_t kMaxDynamicBytes = std::size_t{227} << 10;
constexpr std::size_t kPage = 1024;
constexpr int kPoison = 0xFF;  // NaN as f32 and f16, -1 as an integer

extern unsigned char dynamic_bytes[kMaxDynamicBytes + kPage];  // of the block; what lies behind them is a guard
inline std::size_t static_bytes() {
  return static_cast<std::size_t>(__stop_nibble_shared - __start_nibble_shared);
}

enum class Waits { kNot, kWarp, kWarpgroup, kBarrier, kMbarrier, kCluster, kWord, kEnded };

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};

struct Thread {
  boost::context::fiber context, scheduler;
  Stack stack;
  Waits waits = Waits::kNot;
  int barrier = 0;  // of kBarrier
  u32 mbarrier = 0, parity = 0;
  const u32* word = nullptr;  // of kWord
  dim3 index;
  int number = 0;
  u32 cluster_phase = 0;                     // that it has arrived in
  std::vector<std::vector<Copy>> groups{1};  // of copies; the last one is open
};

struct Meet {
  Meeting kind = Meeting::kNone;
  u32 n = 0;
  std::array<void*, 128> brought{};
};

struct BulkCopy {
  std::function<void()> copy;
  u32 barrier, bytes;
};

struct Mbarrier {
  std::uint16_t count, pending;
  std::int32_t bytes_and_phase;  // bytes on their way * 2 + phase
};
static_assert(sizeof(Mbarrier) == 8);

struct Block {
  dim3 index;
  std::vector<Thread> threads;
  std::vector<Meet> warps, warpgroups;
  std::array<int, kNamedBarriers> arrived{};
  std::vector<BulkCopy> bulk;
  int n_ended = 0;
  std::vector<unsigned char> image;  // of shared memory while another block of the cluster runs
};

// Stacks of fibers, with a page before each that nobody may touch.
class StackPool {
 public:
  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;
  char* top(std::size_t index);

 private:
  std::vector<char*> stacks_;
};

struct Machine {
  std::mutex mutex;
  StackPool stacks;
  std::mt19937 random;
  const std::function<void()>* kernel = nullptr;
  std::size_t shared_bytes = 0;
  std::vector<Block> blocks;  // of the cluster that runs
  u32 cluster_phase = 0;
  int cluster_arrived = 0;
  Block* block = nullptr;
  Thread* thread = nullptr;
  Stack stack;                // of the host's thread
  bool stands_aside = false;  // a thread lets other warps run first
  Fault fault = Fault::kNone;
};

Machine& machine();

// Back to the scheduler, until what the thread waits for is there.
void yield();
void release(Block& block, Waits what, int barrier);
void release_if_all_are_here(Block& block);

Mbarrier& mbarrier_at(u32 address);
void complete_if_due(Mbarrier& barrier);
bool is_over(u32 address, u32 parity);

}  // namespace nibble::cuda_emulation
