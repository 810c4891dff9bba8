// A step allocates nothing once its buffers are there. Global operator new counts while a test asks it to.
#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/kernels/backend_fixture.h"

namespace {

std::atomic<bool> is_counting = false;
std::atomic<int> allocations = 0;

void* counted_alloc(std::size_t size) {
  if (is_counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) {
  return counted_alloc(size);
}
void* operator new[](std::size_t size) {
  return counted_alloc(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace nibble::kernels::test {
namespace {

TEST(Allocation, TheCounterCounts) {
  is_counting = true;
  void* memory = ::operator new(3);  // a new-expression may be optimized away
  is_counting = false;
  ::operator delete(memory);
  EXPECT_EQ(allocations.exchange(0), 1);
}

TEST(Allocation, AStepAllocatesNothing) {
  constexpr int kDim = 128, kRows = 20;
  Random random(1);
  const std::vector<std::uint8_t> codes = random.bytes(kDim * kDim / 2),
                                  scales(std::size_t{kDim} * kDim / 16, std::uint8_t{0x38});
  const Nvfp4View view{"w", kDim, kDim, codes, scales, 1.0F, {}};
  const std::vector<float> floats = random.floats(std::size_t{kRows} * kDim, Kind::kGaussian);
  const std::vector<float> table = random.floats(std::size_t{kRows} * 64, Kind::kGaussian);
  for (const auto& backend : all_cpu_backends()) {
    const auto linear = backend->make_linear(view);
    const auto input = backend->make_linear_input(kRows, kDim);
    const auto cache = backend->make_kv_cache({1, 2, 64, kRows});
    const auto rope = backend->make_rope_table(table, 64, false);
    std::vector<float> x = floats, y(x.size()), q(x.size());
    std::vector<TokenRow> rows;
    for (int pos = 0; pos < kRows; ++pos) rows.push_back({cache.get(), pos});
    const auto step = [&] {
      backend->begin_step(kRows);
      backend->rms_norm(x.data(), floats.data(), kRows, kDim, 1e-5F, y.data());
      backend->prepare_input(y.data(), kRows, *input);
      backend->linear(*input, *linear.value(), nullptr, q.data());
      backend->rope(q.data(), 2, 64, rows, *rope);
      backend->store_kv(q.data(), q.data(), rows, 0);
      backend->attention(q.data(), rows, 0, {2, 2, 64, 0.125F}, y.data());
      backend->silu_mul(y.data(), q.data(), y.size(), y.data());
      backend->add(x.data(), y.data(), x.size());
      backend->end_step();
    };
    step();
    is_counting = true;
    step();
    is_counting = false;
    EXPECT_EQ(allocations.exchange(0), 0) << backend->description();
  }
}

}  // namespace
}  // namespace nibble::kernels::test
