// Whose turn it is: fibers, blocks, clusters, grids.
#include "tests/cuda_emulation/machine.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <boost/context/preallocated.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace nibble::cuda_emulation {

alignas(1024) unsigned char dynamic_bytes[kMaxDynamicBytes + kPage];

char* StackPool::top(std::size_t index) {
  constexpr std::size_t kGuard = 4096;
  while (stacks_.size() <= index) {
    void* memory = mmap(nullptr, kGuard + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, kGuard, PROT_NONE) != 0) breach("no memory for a stack");
    stacks_.push_back(static_cast<char*>(memory) + kGuard + kStackBytes);
  }
  return stacks_[index];
}

Machine& machine() {
  static Machine* const the_machine = [] {
    auto* made = new Machine;
    const char* seed = std::getenv("NIBBLE_EMULATION_SEED");
    made->random.seed(seed != nullptr ? static_cast<u32>(std::strtoul(seed, nullptr, 10)) : 1u);
    return made;
  }();
  return *the_machine;
}

void yield() {
  Thread& thread = *machine().thread;
  void* left = nullptr;
  leave_for(machine().stack, &left);
  thread.scheduler = std::move(thread.scheduler).resume();
  arrive(left, &machine().stack);
}

namespace {

using boost::context::fiber;
constexpr std::size_t kStackBytes = StackPool::kStackBytes;

struct NoDeallocation {
  void deallocate(boost::context::stack_context&) {}
};

void resume(Thread& thread) {
  Machine& m = machine();
  m.thread = &thread;
  threadIdx = thread.index;
  void* left = nullptr;
  leave_for(thread.stack, &left);
  thread.context = std::move(thread.context).resume();
  arrive(left, nullptr);
  m.thread = nullptr;
}

bool can_run(Thread& thread) {
  if (thread.waits == Waits::kMbarrier && is_over(thread.mbarrier, thread.parity)) thread.waits = Waits::kNot;
  if (thread.waits == Waits::kCluster && machine().cluster_phase != thread.cluster_phase) thread.waits = Waits::kNot;
  if (thread.waits == Waits::kWord && *thread.word != 0) thread.waits = Waits::kNot;
  return thread.waits == Waits::kNot;
}

void land(Block& block, std::size_t which) {
  const BulkCopy landing = std::move(block.bulk[which]);
  block.bulk.erase(block.bulk.begin() + static_cast<std::ptrdiff_t>(which));
  landing.copy();
  Mbarrier& barrier = mbarrier_at(landing.barrier);
  barrier.bytes_and_phase -= static_cast<std::int32_t>(landing.bytes) * 2;
  complete_if_due(barrier);
}

// --- a block ---

void end_thread(Thread& thread) {
  Block& block = *machine().block;
  if (block.warps[thread.number / kWarp].n != 0) breach("the thread ended while its warp waits for it");
  thread.waits = Waits::kEnded;
  ++block.n_ended;
  release_if_all_are_here(block);
}

void start(Block& block, const dim3& index, const Grid& grid, std::size_t first_stack) {
  const dim3 size(grid.threads.x, grid.threads.y, grid.threads.z);
  const std::size_t n = std::size_t{size.x} * size.y * size.z;
  block.index = index;
  block.image.clear();
  block.n_ended = 0;
  block.arrived = {};
  block.bulk.clear();
  block.threads.resize(n);
  block.warps.assign((n + kWarp - 1) / kWarp, {});
  block.warpgroups.assign((n + 127) / 128, {});
  for (std::size_t i = 0; i < n; ++i) {
    Thread& thread = block.threads[i];
    thread.number = static_cast<int>(i);
    thread.index = dim3(i % size.x, i / size.x % size.y, i / size.x / size.y);
    thread.waits = Waits::kNot;
    thread.groups.assign(1, {});
    boost::context::stack_context stack;
    stack.size = kStackBytes;
    stack.sp = machine().stacks.top(first_stack + i);
    thread.stack = {static_cast<char*>(stack.sp) - kStackBytes, kStackBytes};
    thread.context = fiber(std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack),
                           NoDeallocation{}, [&thread](fiber&& scheduler) {
                             arrive(nullptr, &machine().stack);
                             thread.scheduler = std::move(scheduler);
                             (*machine().kernel)();
                             end_thread(thread);
                             leave_for(machine().stack, nullptr);
                             return std::move(thread.scheduler);
                           });
  }
}

std::vector<int> any_order(int n) {
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, machine().random);
  return order;
}

// Runs threads until none can; a warp until it waits for others, or a little less far. Now and then one warp is held
// back until no other can go on: who does not wait for it is then far ahead.
bool run_some(Block& block) {
  const int n = static_cast<int>(block.threads.size());
  Machine& m = machine();
  const int n_warps = (n + kWarp - 1) / kWarp;
  bool has_run = false, goes_on = true;
  int held = -1;
  const std::vector<int> lanes = any_order(kWarp);
  while (goes_on) {
    goes_on = false;
    for (const int warp : any_order(n_warps)) {
      bool runs = warp != held;
      while (runs) {
        runs = false;
        for (const int lane : lanes) {
          const int number = warp * kWarp + lane;
          if (number >= n || !can_run(block.threads[number])) continue;
          resume(block.threads[number]);
          runs = goes_on = has_run = true;
        }
        if (runs && (std::exchange(m.stands_aside, false) || m.random() % 8 == 0)) break;
      }
    }
    if (held >= 0 && !goes_on) {
      held = -1;
      goes_on = true;
    } else if (held < 0 && m.random() % 4 == 0) {
      held = static_cast<int>(m.random() % static_cast<unsigned>(n_warps));
    }
    if (!block.bulk.empty() && (!goes_on || m.random() % 4 == 0)) {
      land(block, m.random() % block.bulk.size());
      goes_on = has_run = true;
    }
  }
  return has_run;
}

[[noreturn]] void report_deadlock() {
  static constexpr const char* kNames[] = {"nothing",     "its warp",    "its warpgroup", "a barrier",
                                           "an mbarrier", "its cluster", "another block", "no more"};
  std::string text = "deadlock:";
  for (const Block& block : machine().blocks) {
    for (const Thread& thread : block.threads) {
      if (thread.number % kWarp != 0 && thread.waits == block.threads[thread.number - 1].waits) continue;
      text += fmt::format(" thread {} waits for {};", thread.number, kNames[static_cast<int>(thread.waits)]);
    }
  }
  breach(text);
}

void poison_all() {
  std::memset(__start_nibble_shared, kPoison, static_bytes());
  std::memset(dynamic_bytes, kPoison, sizeof dynamic_bytes);
}

// Which pages of static shared memory the kernel at hand writes: the others need no poison between blocks.
std::vector<std::size_t> dirty_pages() {
  std::vector<std::size_t> pages;
  static const std::vector<unsigned char> clean(kPage, kPoison);
  for (std::size_t at = 0; at < static_bytes(); at += kPage) {
    const std::size_t bytes = std::min(kPage, static_bytes() - at);
    if (std::memcmp(__start_nibble_shared + at, clean.data(), bytes) != 0) pages.push_back(at);
  }
  return pages;
}
void poison(const std::vector<std::size_t>& pages) {
  for (const std::size_t at : pages) {
    std::memset(__start_nibble_shared + at, kPoison, std::min(kPage, static_bytes() - at));
  }
  std::memset(dynamic_bytes, kPoison, machine().shared_bytes);
}

void check_guard() {
  const unsigned char* end = dynamic_bytes + machine().shared_bytes;
  if (std::any_of(end, end + kPage, [](unsigned char c) { return c != kPoison; })) {
    breach("a write beyond the dynamic shared memory of the launch");
  }
}

void keep_image(Block& block) {
  block.image.assign(__start_nibble_shared, __stop_nibble_shared);
  block.image.insert(block.image.end(), dynamic_bytes, dynamic_bytes + machine().shared_bytes);
}

// False if it cannot end before another block has done something.
bool run_block(Block& block) {
  Machine& m = machine();
  m.block = &block;
  blockIdx = block.index;
  while (block.n_ended < static_cast<int>(block.threads.size())) {
    if (run_some(block)) continue;
    if (std::ranges::none_of(block.threads, [](const Thread& t) { return t.waits == Waits::kWord; })) report_deadlock();
    keep_image(block);
    return false;
  }
  check_guard();
  return true;
}

// Blocks that run at once share the one shared memory of this machine: each has its contents put aside.
void run_at_once(std::vector<Block>& blocks) {
  Machine& m = machine();
  std::size_t n_ended = 0;
  while (n_ended < blocks.size()) {
    bool has_run = false;
    n_ended = 0;
    for (Block& block : blocks) {
      poison_all();
      if (!block.image.empty()) {
        std::memcpy(__start_nibble_shared, block.image.data(), static_bytes());
        std::memcpy(dynamic_bytes, block.image.data() + static_bytes(), m.shared_bytes);
      }
      m.block = &block;
      blockIdx = block.index;
      has_run |= run_some(block);
      check_guard();
      keep_image(block);
      n_ended += block.n_ended == static_cast<int>(block.threads.size());
    }
    if (!has_run) report_deadlock();
  }
}

}  // namespace

const Gpu& gpu() {
  static const Gpu the_gpu = [] {
    Gpu made;
    if (const char* text = std::getenv("NIBBLE_EMULATED_GPU"); text != nullptr) {
      if (std::sscanf(text, "%dx%d", &made.capability, &made.n_multiprocessors) != 2) breach("NIBBLE_EMULATED_GPU");
    }
    return made;
  }();
  return the_gpu;
}

Fault fault() {
  return machine().fault;
}
void set_fault(Fault fault) {
  machine().fault = fault;
}

void run_grid(const Grid& grid, const std::function<void()>& kernel) {
  Machine& m = machine();
  const std::scoped_lock lock(m.mutex);
  m.kernel = &kernel;
  m.shared_bytes = grid.shared_bytes;
  gridDim = dim3(grid.blocks.x, grid.blocks.y, grid.blocks.z);
  blockDim = dim3(grid.threads.x, grid.threads.y, grid.threads.z);
  m.blocks.resize(grid.cluster);
  poison_all();
  const u32 n_clusters = gridDim.x / grid.cluster * gridDim.y * gridDim.z, per_row = gridDim.x / grid.cluster;
  std::vector<std::size_t> pages;
  const std::size_t n_threads = std::size_t{blockDim.x} * blockDim.y * blockDim.z;
  bool is_first = true;
  const auto start_at = [&](u32 slot, u32 cluster, u32 rank) {
    const u32 x = cluster % per_row * grid.cluster + rank, row = cluster / per_row;
    start(m.blocks[slot], dim3(x, row % gridDim.y, row / gridDim.y), grid, slot * n_threads);
  };
  const std::vector<int> order = any_order(static_cast<int>(n_clusters));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const u32 number = static_cast<u32>(order[i]);
    for (u32 rank = 0; rank < grid.cluster; ++rank) start_at(rank, number, rank);
    m.cluster_arrived = 0;
    if (grid.cluster > 1) {
      run_at_once(m.blocks);
      continue;
    }
    if (!is_first) poison(pages);
    if (!run_block(m.blocks[0])) {
      m.blocks.resize(order.size() - i);
      for (u32 slot = 1; slot < m.blocks.size(); ++slot) start_at(slot, static_cast<u32>(order[i + slot]), 0);
      run_at_once(m.blocks);
      break;
    }
    if (is_first) pages = dirty_pages();
    is_first = false;
  }
  m.block = nullptr;
}

void breach(std::string_view what) {
  std::fprintf(stderr, "cuda emulation: %.*s [block %u %u %u, thread %u %u %u]\n", static_cast<int>(what.size()),
               what.data(), blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  std::abort();
}

}  // namespace nibble::cuda_emulation
