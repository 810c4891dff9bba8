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

// Between ops of one token a thread waits microseconds, not milliseconds: it looks a while before it sleeps, and waking
// it again costs more than it waits. How often it looks follows from how that went: more each time that what it waited
// for came, half where it slept in vain, because on a machine whose cores are taken by others the one that is waited
// for may need this very core. It does not yield meanwhile: a yield hands the core away for whole time slices. With
// fewer cores than threads a spinner would steal the worker's core, so the pool then sleeps at once.
class Patience {
 public:
  explicit Patience(bool is_any) : looks_(is_any ? kLeast : 0), is_any_(is_any) {}

  // Looks until is_there() or patience is at its end.
  template <typename Predicate>
  void wait(Predicate is_there) {
    for (int i = 0; i < looks_; ++i) {
      if (!is_there()) continue;
      looks_ = std::min(looks_ + kLeast, kMost);
      return;
    }
    if (is_any_) looks_ = std::max(looks_ / 2, kLeast);
  }

 private:
  static constexpr int kLeast = 20'000;  // some 10 microseconds
  static constexpr int kMost = 1'000'000;
  int looks_;
  bool is_any_;
};

}  // namespace

struct ThreadPool::Impl {
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  std::atomic<std::uint64_t> generation{0};
  std::atomic<int> running{0};
  bool stop = false;  // guarded by mutex, published by generation
  bool may_spin = true;
  Patience patience{true};  // of the caller

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
    Patience own_patience(may_spin);
    for (;;) {
      own_patience.wait([&] { return generation.load(std::memory_order_acquire) != seen; });
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
  impl_->may_spin = n_threads <= hardware_threads();
  impl_->patience = Patience(impl_->may_spin);
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
  impl_->patience.wait([&] { return impl_->running.load(std::memory_order_acquire) == 0; });
  std::unique_lock lock(impl_->mutex);
  impl_->done.wait(lock, [&] { return impl_->running.load(std::memory_order_acquire) == 0; });
}

}  // namespace nibble
