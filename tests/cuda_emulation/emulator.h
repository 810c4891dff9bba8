// Thread blocks of CUDA on one thread of the host. Every CUDA thread is a fiber; it runs until it has to wait for
// others (a barrier, its warp, an mbarrier), and then another one runs. Blocks run one after another, until one waits
// for what another has to write: then all that are left run at once. Warps, lanes and blocks take turns in an order
// that a seed chooses and that changes with every launch, as unlike lockstep as can be: a barrier that is missing lets
// somebody run far ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace nibble::cuda_emulation {

using u32 = unsigned int;
using u64 = unsigned long long;

constexpr int kWarp = 32;
constexpr u32 kAllLanes = 0xFFFFFFFFu;

struct Index3 {
  unsigned x = 1, y = 1, z = 1;
};

// What is emulated: compute capability and multiprocessors. NIBBLE_EMULATED_GPU=90x132 says otherwise than 80x4.
struct Gpu {
  int capability = 80;
  int n_multiprocessors = 4;
};
const Gpu& gpu();

// A fault that the emulation makes on purpose, for positive controls: what of the tests notices it. Of a lost GPU no
// work is done, and whoever waits for it, or asks for memory, is told.
enum class Fault { kNone, kNoSyncThreads, kNoSyncWarp, kNoCopyWait, kWrongBit, kLost };
Fault fault();
void set_fault(Fault fault);
// The n-th call of the runtime from now on that could fail does, and does nothing; 0: none. Not yet reached: how many
// are missing.
void set_failing_call(int n);
int calls_until_failure();
// Bytes of the device's memory that are in use.
std::size_t used_bytes();

struct Grid {
  Index3 blocks, threads;
  std::size_t shared_bytes = 0;
  unsigned cluster = 1;
};
void run_grid(const Grid& grid, const std::function<void()>& kernel);

// A breach of CUDA's rules, with the thread that it was seen in. The program ends.
[[noreturn]] void breach(std::string_view what);

// --- what a running thread calls ---

// All lanes of the warp come here; the last one runs finish() on what each brought, and nobody goes on before that.
// Lanes that come to different kinds of meetings, or lanes that have ended, are a breach.
enum class Meeting { kNone, kSync, kShuffle, kReduce, kMatrix };
void meet_warp(Meeting kind, u32 mask, void* mine, void (*finish)(void* const* lanes));
// The same for 128 threads: wgmma.
void meet_warpgroup(void* mine, void (*finish)(void* const* threads));

int thread_number();  // in its block
int thread_slot();    // among those of all blocks that run
void sync_threads();
void named_barrier(int id, int n_threads, bool waits);
void cluster_arrive();
void cluster_wait();
// Until a word of global memory is not zero: another block writes it.
void wait_for_word(const u32* word);

// Asynchronous copies of this thread. The destination is poisoned at once and written when the group is waited for.
void start_copy(void* shared, const void* global, std::size_t bytes);
void commit_copies();
void wait_copies(int most_pending);
// Copies that a barrier counts. They land as late as can be, or a little earlier.
void start_bulk_copy(std::function<void()> copy, u32 barrier, u32 bytes);

// Shared memory. An address of 32 bits is an offset; a pointer back is checked against what the block has.
void* dynamic_memory();
u32 shared_address(const void* memory);
void* shared_pointer(u32 address, std::size_t bytes);

void mbarrier_init(u32 barrier, int count);
void mbarrier_arrive(u32 barrier, u32 expected_bytes);
void mbarrier_wait(u32 barrier, u32 parity);

}  // namespace nibble::cuda_emulation
