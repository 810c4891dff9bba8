// A fixed set of threads that run one index range at a time. The caller is thread 0, so a pool of one starts no thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace nibble {

class ThreadPool {
 public:
  explicit ThreadPool(int n_threads);  // n_threads >= 1; threads sleep between calls after a short spin
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Calls body(begin, end, thread) over a partition of [0, count) into at most size() contiguous ranges whose bounds
  // are multiples of `grain`; returns when all are done. Which thread gets which range never changes a result: nothing
  // in nibble adds floats across ranges. Not reentrant; one caller at a time.
  void parallel_for(std::size_t count, std::size_t grain,
                    const std::function<void(std::size_t begin, std::size_t end, int thread)>& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble
