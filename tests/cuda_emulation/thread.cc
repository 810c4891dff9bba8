// What a running thread calls: meetings, barriers, copies, shared memory.
#include <cstring>
#include <utility>

#include "tests/cuda_emulation/machine.h"

namespace nibble::cuda_emulation {
namespace {

constexpr u32 kStaticBase = 1u << 20;  // of addresses; dynamic memory begins at 0, where a descriptor of wgmma reaches

}  // namespace

void release(Block& block, Waits what, int barrier) {
  for (Thread& thread : block.threads) {
    if (thread.waits == what && (what != Waits::kBarrier || thread.barrier == barrier)) thread.waits = Waits::kNot;
  }
}

void release_if_all_are_here(Block& block) {
  if (block.arrived[0] == 0 || block.arrived[0] < static_cast<int>(block.threads.size()) - block.n_ended) return;
  block.arrived[0] = 0;
  release(block, Waits::kBarrier, 0);
}

Mbarrier& mbarrier_at(u32 address) {
  auto& barrier = *static_cast<Mbarrier*>(shared_pointer(address, sizeof(Mbarrier)));
  if (barrier.count == 0 || barrier.count > kMaxThreads) breach("an mbarrier that was not initialized");
  return barrier;
}
void complete_if_due(Mbarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes_and_phase >> 1 != 0) return;
  barrier.pending = barrier.count;
  barrier.bytes_and_phase ^= 1;
}
bool is_over(u32 address, u32 parity) {
  return (static_cast<u32>(mbarrier_at(address).bytes_and_phase) & 1u) != (parity & 1u);
}

void meet_warp(Meeting kind, u32 mask, void* mine, void (*finish)(void* const* lanes)) {
  Machine& m = machine();
  if (kind == Meeting::kSync && fault() == Fault::kNoSyncWarp) return;
  Thread& thread = *m.thread;
  Block& block = *m.block;
  const int first = thread.number / kWarp * kWarp;
  Meet& meet = block.warps[first / kWarp];
  if (mask != kAllLanes) breach("a meeting of some lanes of a warp, which is not emulated");
  if (meet.n == 0) {
    meet.kind = kind;
    for (int i = 0; i < kWarp; ++i) {
      if (block.threads[first + i].waits == Waits::kEnded) breach("a lane of the warp has ended");
    }
  }
  if (meet.kind != kind) breach("lanes of a warp met at different places");
  meet.brought[thread.number - first] = mine;
  if (++meet.n < kWarp) {
    thread.waits = Waits::kWarp;
    yield();
    return;
  }
  meet.n = 0;
  if (finish != nullptr) finish(meet.brought.data());
  for (int i = 0; i < kWarp; ++i) block.threads[first + i].waits = Waits::kNot;
}

void meet_warpgroup(void* mine, void (*finish)(void* const* threads)) {
  Machine& m = machine();
  Thread& thread = *m.thread;
  Block& block = *m.block;
  constexpr int kThreads = 128;
  const int first = thread.number / kThreads * kThreads;
  Meet& meet = block.warpgroups[first / kThreads];
  meet.brought[thread.number - first] = mine;
  if (++meet.n < kThreads) {
    thread.waits = Waits::kWarpgroup;
    yield();
    return;
  }
  meet.n = 0;
  finish(meet.brought.data());
  for (int i = 0; i < kThreads; ++i) block.threads[first + i].waits = Waits::kNot;
}

int thread_number() {
  return machine().thread->number;
}
int thread_slot() {
  const Machine& m = machine();
  return static_cast<int>(m.block - m.blocks.data()) * kMaxThreads + m.thread->number;
}

void sync_threads() {
  if (fault() == Fault::kNoSyncThreads) return;
  Machine& m = machine();
  ++m.block->arrived[0];
  m.thread->waits = Waits::kBarrier;
  m.thread->barrier = 0;
  release_if_all_are_here(*m.block);
  if (m.thread->waits != Waits::kNot) yield();
}

void named_barrier(int id, int n_threads, bool waits) {
  Machine& m = machine();
  if (id <= 0 || id >= kNamedBarriers) breach("a named barrier has a number from 1 to 15");
  if (++m.block->arrived[id] == n_threads) {
    m.block->arrived[id] = 0;
    release(*m.block, Waits::kBarrier, id);
    return;
  }
  if (!waits) return;
  m.thread->waits = Waits::kBarrier;
  m.thread->barrier = id;
  yield();
}

void cluster_arrive() {
  Machine& m = machine();
  m.thread->cluster_phase = m.cluster_phase;
  std::size_t n_alive = 0;
  for (const Block& block : m.blocks) n_alive += block.threads.size() - static_cast<std::size_t>(block.n_ended);
  if (static_cast<std::size_t>(++m.cluster_arrived) < n_alive) return;
  m.cluster_arrived = 0;
  ++m.cluster_phase;
}
void cluster_wait() {
  Machine& m = machine();
  if (m.cluster_phase != m.thread->cluster_phase) return;
  m.thread->waits = Waits::kCluster;
  yield();
}

void wait_for_word(const u32* word) {
  if (*word != 0) return;
  Thread& thread = *machine().thread;
  thread.waits = Waits::kWord;
  thread.word = word;
  yield();
}

void start_copy(void* shared, const void* global, std::size_t bytes) {
  shared_pointer(shared_address(shared), bytes);
  if (reinterpret_cast<std::uintptr_t>(global) % bytes != 0) breach("an asynchronous copy from an unaligned address");
  std::memset(shared, kPoison, bytes);
  machine().thread->groups.back().push_back({shared, global, bytes});
}
void commit_copies() {
  machine().thread->groups.emplace_back();
}
void wait_copies(int most_pending) {
  if (fault() == Fault::kNoCopyWait) return;
  auto& groups = machine().thread->groups;
  while (static_cast<int>(groups.size()) - 1 > most_pending) {
    for (const Copy& copy : groups.front()) std::memcpy(copy.to, copy.from, copy.bytes);
    groups.erase(groups.begin());
  }
}
void start_bulk_copy(std::function<void()> copy, u32 barrier, u32 bytes) {
  machine().block->bulk.push_back({std::move(copy), barrier, bytes});
}

void* dynamic_memory() {
  return dynamic_bytes;
}
u32 shared_address(const void* memory) {
  const auto* p = static_cast<const unsigned char*>(memory);
  if (p >= dynamic_bytes && p < dynamic_bytes + machine().shared_bytes) return static_cast<u32>(p - dynamic_bytes);
  if (p < __start_nibble_shared || p >= __stop_nibble_shared) breach("an address that is not in shared memory");
  return kStaticBase + static_cast<u32>(p - __start_nibble_shared);
}
void* shared_pointer(u32 address, std::size_t bytes) {
  if (address % bytes != 0) breach("an unaligned address in shared memory");
  if (address + bytes <= machine().shared_bytes) return dynamic_bytes + address;
  if (address < kStaticBase || address - kStaticBase + bytes > static_bytes()) {
    breach("an address beyond the shared memory of the block");
  }
  return __start_nibble_shared + (address - kStaticBase);
}

void mbarrier_init(u32 barrier, int count) {
  *static_cast<Mbarrier*>(shared_pointer(barrier, sizeof(Mbarrier))) = {static_cast<std::uint16_t>(count),
                                                                        static_cast<std::uint16_t>(count), 0};
}
void mbarrier_arrive(u32 address, u32 expected_bytes) {
  Mbarrier& barrier = mbarrier_at(address);
  if (barrier.pending == 0) breach("more arrivals at an mbarrier than it counts");
  barrier.bytes_and_phase += static_cast<std::int32_t>(expected_bytes) * 2;
  --barrier.pending;
  complete_if_due(barrier);
  // Whoever waited for this may be far ahead before this thread does anything more.
  Machine& m = machine();
  if (m.random() % 2 == 0) {
    m.stands_aside = true;
    yield();
  }
}
void mbarrier_wait(u32 address, u32 parity) {
  if (is_over(address, parity)) return;
  Thread& thread = *machine().thread;
  thread.waits = Waits::kMbarrier;
  thread.mbarrier = address;
  thread.parity = parity;
  yield();
}

}  // namespace nibble::cuda_emulation
