// A fixed set of threads that run one index range at a time. The caller is thread 0, so a pool of one starts no thread.
// No job takes a lock or allocates: what passes between threads are atomics, and one that waits long sleeps in them.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/cpus.h"
#include "base/function_ref.h"

namespace nibble {

// A place for each of n threads: one of these CPUs where there are as many, one of these cores (on whichever of its
// CPUs the system likes) where there are as many of these. Then there is nothing to choose. Otherwise none: more
// threads would have to share, and of fewer the places would be a guess that another process, or the next one of ours,
// makes as well.
std::vector<CpuMask> places_of_threads(int n_threads, const std::vector<std::vector<int>>& cores = usable_cores());

class ThreadPool {
 public:
  using Body = FunctionRef<void(std::size_t begin, std::size_t end, int thread)>;

  // n_threads >= 1. If there are places, one for each thread, they stay there; the caller's comes first.
  explicit ThreadPool(int n_threads, std::vector<CpuMask> places = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;
  bool is_pinned() const;

  // Calls body(begin, end, thread) over contiguous ranges of [0, count), whose bounds are multiples of `grain`; returns
  // when all are done. Each thread has a share of its own, always the same of the same count, which it takes from the
  // front in ranges of a multiple of `least` (or of what is left); who is done takes from the end of others' shares. So
  // a thread that the system keeps from its core holds up only what it has begun. `thread` in [0, size()) runs one
  // range at a time, often several in a job. Who gets which range never changes a result: nothing in nibble adds floats
  // across ranges. Not reentrant; one caller at a time.
  void parallel_for(std::size_t count, std::size_t grain, Body body) { parallel_for(count, grain, grain, body); }
  void parallel_for(std::size_t count, std::size_t grain, std::size_t least, Body body);

  // Of a pinned pool: from here to release_caller the calling thread stays in the place of thread 0, then it may run
  // where it could before. Around a step and no longer, because whatever a thread starts inherits where it may run.
  void pin_caller();
  void release_caller();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble
