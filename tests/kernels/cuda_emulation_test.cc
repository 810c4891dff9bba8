// The emulation of CUDA that the kernels are tested on: what it must notice, planted; and faults of the machine under
// the kernels themselves.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/registry.h"
#include "kernels/seam_canary.h"
#include "tests/cuda_emulation/emulator.h"
#include "tests/kernels/backend_fixture.h"

namespace nibble::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// Integers in the memory of the device, which the host may read here.
class Integers {
 public:
  explicit Integers(int n) : memory_(std::move(DeviceMemory::allocate(n * sizeof(int), "integers")).value()) {
    for (int i = 0; i < n; ++i) data()[i] = i;
  }
  int* data() { return memory_.as<int>(); }

 private:
  DeviceMemory memory_;
};

bool are_reversed(const int* values, int n) {
  for (int i = 0; i < n; ++i) {
    if (values[i] != n - 1 - i) return false;
  }
  return true;
}

__global__ void reverse_kernel(int* values, bool syncs) {
  __shared__ int shared[kThreads];
  shared[threadIdx.x] = values[threadIdx.x];
  if (syncs) __syncthreads();
  values[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

TEST(CudaEmulation, NoticesAMissingSyncThreads) {
  for (const bool syncs : {true, false}) {
    Integers values(kThreads);
    ASSERT_EQ(launch_kernel(reverse_kernel, {1, kThreads}, nullptr, values.data(), syncs), cudaSuccess);
    EXPECT_EQ(are_reversed(values.data(), kThreads), syncs);
  }
}

__global__ void reverse_warp_kernel(int* values, bool syncs) {
  __shared__ int shared[32];
  shared[threadIdx.x] = values[threadIdx.x];
  if (syncs) __syncwarp();
  values[threadIdx.x] = shared[31 - threadIdx.x];
}

TEST(CudaEmulation, NoticesAMissingSyncWarp) {
  for (const bool syncs : {true, false}) {
    Integers values(32);
    ASSERT_EQ(launch_kernel(reverse_warp_kernel, {1, 32}, nullptr, values.data(), syncs), cudaSuccess);
    EXPECT_EQ(are_reversed(values.data(), 32), syncs);
  }
}

__global__ void reverse_by_copies_kernel(int* values, bool waits) {
  NIBBLE_DYNAMIC_SHARED(int, shared, 16);
  copy_4(shared + threadIdx.x, values + threadIdx.x);
  commit_copies();
  if (waits) wait_copies<0>();
  __syncthreads();
  values[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

TEST(CudaEmulation, NoticesAMissingWaitForCopies) {
  for (const bool waits : {true, false}) {
    Integers values(kThreads);
    const LaunchShape shape = {1, kThreads, kThreads * sizeof(int)};
    ASSERT_EQ(launch_kernel(reverse_by_copies_kernel, shape, nullptr, values.data(), waits), cudaSuccess);
    EXPECT_EQ(are_reversed(values.data(), kThreads), waits);
  }
}

__global__ void write_kernel(int* values, int i) {
  if (threadIdx.x == 0) values[i] = 1;
}
__global__ void write_shared_kernel(int i) {
  NIBBLE_DYNAMIC_SHARED(int, shared, 16);
  if (threadIdx.x == 0) shared[i] = 1;
}

TEST(CudaEmulationDeathTest, NoticesWritesOutOfBounds) {
  const auto write = [](int i) {
    Integers values(8);
    (void)launch_kernel(write_kernel, {1, 32}, nullptr, values.data(), i);
  };
  write(7);
  EXPECT_DEATH(write(8), "beyond an allocation|AddressSanitizer");
  const auto write_shared = [](int i) {
    (void)launch_kernel(write_shared_kernel, {1, 32, 8 * sizeof(int)}, nullptr, i);
  };
  write_shared(7);
  EXPECT_DEATH(write_shared(8), "beyond the dynamic shared memory");
}

enum class Astray { kShuffle, kBarrier, kEnd };
__global__ void astray_kernel(int* values, Astray how) {
  if (threadIdx.x % 2 == 0 && how == Astray::kEnd) return;
  if (threadIdx.x % 2 == 0 && how == Astray::kShuffle) values[0] = __shfl_xor_sync(~0u, values[0], 1);
  if (how == Astray::kBarrier) barrier_wait(shared_address(values), 0);
  __syncwarp();
}

TEST(CudaEmulationDeathTest, NoticesLanesThatDoNotMeet) {
  const auto run = [](Astray how) {
    Integers values(32);
    (void)launch_kernel(astray_kernel, {1, 32}, nullptr, values.data(), how);
  };
  EXPECT_DEATH(run(Astray::kShuffle), "different places");
  EXPECT_DEATH(run(Astray::kEnd), "ended");
  EXPECT_DEATH(run(Astray::kBarrier), "not in shared memory");
}

__global__ void wait_forever_kernel() {
  __shared__ u64 barrier;
  if (threadIdx.x == 0) barrier_init(shared_address(&barrier), 2);
  __syncwarp();
  if (threadIdx.x == 0) barrier_arrive(shared_address(&barrier));
  barrier_wait(shared_address(&barrier), 0);
}

TEST(CudaEmulationDeathTest, NoticesADeadlock) {
  EXPECT_DEATH((void)launch_kernel(wait_forever_kernel, {1, 32}, nullptr), "deadlock");
}

// Every block adds one to what the block before it wrote.
__global__ void pass_on_kernel(int* values, u32* flags, bool waits, bool publishes) {
  const unsigned block = blockIdx.x;
  if (threadIdx.x != 0) return;
  if (block > 0 && waits) wait_until_published(flags + block - 1);
  values[block] = block > 0 ? values[block - 1] + 1 : 0;
  if (publishes) publish(flags + block);
}
cudaError_t pass_on(int* values, bool waits, bool publishes) {
  constexpr int kBlocks = 16;
  Integers flags(kBlocks);
  std::fill_n(flags.data(), kBlocks, 0);
  std::fill_n(values, kBlocks, -1);
  return launch_kernel(pass_on_kernel, {kBlocks, 32}, nullptr, values, reinterpret_cast<u32*>(flags.data()), waits,
                       publishes);
}

TEST(CudaEmulation, NoticesAMissingWaitForAnotherBlock) {
  Integers values(16);
  for (const bool waits : {true, false}) {
    ASSERT_EQ(pass_on(values.data(), waits, true), cudaSuccess);
    EXPECT_EQ(values.data()[15] == 15, waits);
  }
}
TEST(CudaEmulationDeathTest, NoticesABlockThatNobodyTells) {
  Integers values(16);
  EXPECT_DEATH((void)pass_on(values.data(), true, false), "deadlock.* waits for another block");
}

// One product of 1 * 1 in every sum, on top of c.
__global__ void sum_kernel(float* out, float c) {
  const u32 one = 0x3C00u, first = threadIdx.x % 4 == 0 ? one : 0u;
  const u32 a[4] = {first, first, 0, 0};
  float sums[4] = {c, c, c, c};
  mma_f16(sums, a, first, 0);
  out[threadIdx.x] = sums[0];
}

TEST(CudaEmulation, ASumThatF32CannotHoldIsNoNumber) {
  const auto sum = [](float c) {
    Integers values(32);
    auto* out = reinterpret_cast<float*>(values.data());
    EXPECT_EQ(launch_kernel(sum_kernel, {1, 32}, nullptr, out, c), cudaSuccess);
    return out[13];
  };
  EXPECT_EQ(sum(0x1p24F - 2), 0x1p24F - 1);
  EXPECT_TRUE(std::isnan(sum(0x1p24F - 1)));  // representable, but at the limit of what any order may meet
  EXPECT_TRUE(std::isnan(sum(0x1p-24F)));
}

// The kernels on a machine that has the fault from now on: a digest like the start-up test's must be another one, or
// the emulation ends the program first.
TEST(CudaEmulationDeathTest, TheKernelsDependOnWhatIsFaulty) {
  auto backend = make_backend("cuda", {});
  ASSERT_TRUE(backend.ok()) << backend.error().to_string();
  const auto run = [&](cuda_emulation::Fault fault) {
    cuda_emulation::set_fault(fault);
    const auto digest = seam_canary_digest(**backend);
    if (!digest.ok() || *digest != seam_canary_expected(ActivationFormat::kA11))
      cuda_emulation::breach("another digest");
    std::exit(0);
  };
  using cuda_emulation::Fault;
  EXPECT_EXIT(run(Fault::kNone), ::testing::ExitedWithCode(0), "");
  EXPECT_DEATH(run(Fault::kNoSyncThreads), "cuda emulation");
  EXPECT_DEATH(run(Fault::kNoSyncWarp), "another digest");
  EXPECT_DEATH(run(Fault::kNoCopyWait), "another digest");
  EXPECT_DEATH(run(Fault::kWrongBit), "another digest");
}

}  // namespace
}  // namespace nibble::kernels::cuda
