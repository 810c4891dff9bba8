#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/machine.h"

namespace nibble {
namespace {

// Between ops of one token a thread waits microseconds, not milliseconds: it looks that often before it sleeps, some
// tens of microseconds. It does not yield meanwhile: on a busy machine a yield hands the core away for whole time
// slices, and decoding then takes several times as long as with sleeping threads. With fewer cores than threads a
// spinner would steal the worker's core, so the pool then sleeps at once.
constexpr int kSpins = 20000;

}  // namespace

struct ThreadPool::Impl {
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  std::atomic<std::uint64_t> generation{0};
  std::atomic<int> running{0};
  bool stop = false;  // guarded by mutex, published by generation
  int spins = kSpins;

  std::size_t count = 0;
  std::size_t grain = 1;
  const std::function<void(std::size_t, std::size_t, int)>* body = nullptr;

  void run_share(int thread, int n_threads) const {
    const std::size_t units = (count + grain - 1) / grain;
    const std::size_t begin = units * thread / n_threads * grain;
    const std::size_t end = std::min(count, units * (thread + 1) / n_threads * grain);
    if (begin < end) (*body)(begin, end, thread);
  }

  void worker(int thread, int n_threads) {
    std::uint64_t seen = 0;
    for (;;) {
      for (int i = 0; i < spins && generation.load(std::memory_order_acquire) == seen; ++i) {
      }
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return generation.load(std::memory_order_relaxed) != seen; });
        seen = generation.load(std::memory_order_relaxed);
        if (stop) return;
      }
      run_share(thread, n_threads);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        std::lock_guard lock(mutex);
        done.notify_one();
      }
    }
  }
};

ThreadPool::ThreadPool(int n_threads) : impl_(std::make_unique<Impl>()) {
  NIBBLE_CHECK(n_threads >= 1, "a thread pool needs at least one thread");
  if (n_threads > hardware_threads()) impl_->spins = 0;
  for (int i = 1; i < n_threads; ++i) {
    impl_->threads.emplace_back([impl = impl_.get(), i, n_threads] { impl->worker(i, n_threads); });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
    impl_->generation.fetch_add(1, std::memory_order_release);
  }
  impl_->wake.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
}

int ThreadPool::size() const {
  return static_cast<int>(impl_->threads.size()) + 1;
}

void ThreadPool::parallel_for(std::size_t count, std::size_t grain,
                              const std::function<void(std::size_t, std::size_t, int)>& body) {
  if (count == 0) return;
  const int n_threads = size();
  if (n_threads == 1 || count <= grain) {
    body(0, count, 0);
    return;
  }
  {
    std::lock_guard lock(impl_->mutex);
    impl_->count = count;
    impl_->grain = grain;
    impl_->body = &body;
    impl_->running.store(n_threads - 1, std::memory_order_relaxed);
    impl_->generation.fetch_add(1, std::memory_order_release);
  }
  impl_->wake.notify_all();
  impl_->run_share(0, n_threads);
  for (int i = 0; i < impl_->spins && impl_->running.load(std::memory_order_acquire) != 0; ++i) {
  }
  std::unique_lock lock(impl_->mutex);
  impl_->done.wait(lock, [&] { return impl_->running.load(std::memory_order_acquire) == 0; });
}

}  // namespace nibble
