#include "kernels/cpu/canary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/detect.h"
#include "kernels/registry.h"

namespace nibble::kernels {
namespace {

using ::testing::HasSubstr;

const cpu::KernelTable& scalar_table() {
  return *cpu::select_isa("scalar").value();
}

TEST(Canary, EveryInstructionSetSingsTheSame) {
  for (const std::string_view isa : cpu::isa_names()) {
    const cpu::KernelTable& table = *cpu::select_isa(isa).value();
    const cpu::CanaryDigests digests = cpu::canary_digests(table);
    EXPECT_EQ(digests, cpu::kCanaryDigests)
        << isa << std::hex << ": {0x" << digests.elementary << ", 0x" << digests.linear << ", 0x" << digests.quant
        << ", 0x" << digests.fp8 << ", 0x" << digests.attention << ", 0x" << digests.abilities << ", 0x"
        << digests.a16q8 << ", 0x" << digests.w4a4 << "}";
    EXPECT_TRUE(cpu::run_canary(table).ok());
  }
}

TEST(Canary, RefusesAKernelThatRoundsDifferently) {
  cpu::KernelTable table = scalar_table();
  ASSERT_TRUE(cpu::run_canary(table).ok());
  table.silu_mul = [](const float* gate, const float* up, std::size_t n, float* out) {
    scalar_table().silu_mul(gate, up, n, out);
    out[n - 1] = out[n - 1] * (1.0F + 0x1p-22F);
  };
  const Status status = cpu::run_canary(table);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("cannot keep the contracts here"));
}

TEST(Canary, RefusesAKernelOfTheOtherLaneAsWell) {
  cpu::KernelTable table = scalar_table();
  table.linear_quant[6] = [](const cpu::QuantWeights& weights, const cpu::Activations& in, const cpu::LinearJob& job) {
    scalar_table().linear_quant[6](weights, in, job);  // Q4_K
    job.out[0] = job.out[0] * (1.0F + 0x1p-22F);
  };
  EXPECT_FALSE(cpu::run_canary(table).ok());
}

TEST(Canary, RefusesAnFp8KernelThatRoundsDifferently) {
  cpu::KernelTable table = scalar_table();
  table.linear_fp8 = [](const cpu::Fp8Weights& weights, const cpu::Activations& in, const cpu::LinearJob& job) {
    scalar_table().linear_fp8(weights, in, job);
    job.out[0] = job.out[0] * (1.0F + 0x1p-22F);
  };
  EXPECT_FALSE(cpu::run_canary(table).ok());
}

// Each is the only piece of its contract that is off.
TEST(Canary, RefusesAKernelOfEveryContract) {
  const auto refuses = [](auto change) {
    cpu::KernelTable table = scalar_table();
    change(table);
    return !cpu::run_canary(table).ok();
  };
  EXPECT_FALSE(refuses([](cpu::KernelTable&) {}));
  EXPECT_TRUE(refuses([](cpu::KernelTable& table) {
    table.linear_nvfp4_a16q8 = [](const cpu::Nvfp4Weights& w, const cpu::Activations& in, const cpu::LinearJob& job) {
      scalar_table().linear_nvfp4_a16q8(w, in, job);
      if (in.n_rows > 1) job.out[job.row_end - 1] = job.out[job.row_end - 1] * (1.0F + 0x1p-11F);
    };
  }));
  EXPECT_TRUE(refuses([](cpu::KernelTable& table) {
    table.quantize_a16q8 = [](const float* x, int n_in, std::size_t stride, std::int16_t* q, cpu::PlaneBlock* planes,
                              float* d) {
      std::vector<float> other(x, x + n_in);
      other[7] = other[7] + 0.125F;
      return scalar_table().quantize_a16q8(other.data(), n_in, stride, q, planes, d);
    };
  }));
  EXPECT_TRUE(refuses([](cpu::KernelTable& table) {
    table.linear_w4a4 = [](const cpu::Nvfp4Weights& w, const cpu::Activations& in, const cpu::LinearJob& job) {
      scalar_table().linear_w4a4(w, in, job);
      job.out[0] = job.out[0] * (1.0F + 0x1p-11F);
    };
  }));
  EXPECT_TRUE(refuses([](cpu::KernelTable& table) {
    table.quantize_w4a4 = [](const float* x, int n_in, float input_scale_inv, std::size_t stride, std::int16_t* q) {
      scalar_table().quantize_w4a4(x, n_in, input_scale_inv * 1.5F, stride, q);
    };
  }));
}

// What only many tokens meet, and only blocks with a certificate where there are tiles.
TEST(Canary, RefusesAKernelOfManyTokens) {
  cpu::KernelTable table = scalar_table();
  table.linear_nvfp4 = [](const cpu::Nvfp4Weights& w, const cpu::Activations& in, const cpu::LinearJob& job) {
    scalar_table().linear_nvfp4(w, in, job);
    if (in.n_rows > 16) job.out[job.row_end - 1] = job.out[job.row_end - 1] * (1.0F + 0x1p-22F);
  };
  EXPECT_FALSE(cpu::run_canary(table).ok());
}

TEST(Canary, RefusesContraction) {
  cpu::KernelTable table = scalar_table();
  table.multiply_add_probe = [](float a, float b, float c) { return __builtin_fmaf(a, b, c); };
  const Status status = cpu::run_canary(table);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("contracts"));
}

#if defined(__SSE__)
TEST(Canary, RefusesFlushedSubnormalsAndOtherRounding) {
  const unsigned before = __builtin_ia32_stmxcsr();
  for (const unsigned bits : {0x8000U, 0x0040U, 0x8040U}) {  // FTZ, DAZ, both
    __builtin_ia32_ldmxcsr(before | bits);
    const Status status = cpu::run_canary(scalar_table());
    __builtin_ia32_ldmxcsr(before);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("subnormal"));
  }
  for (const unsigned mode : {0x2000U, 0x4000U, 0x6000U}) {  // down, up, toward zero
    __builtin_ia32_ldmxcsr(before | mode);
    const Status status = cpu::run_canary(scalar_table());
    __builtin_ia32_ldmxcsr(before);
    ASSERT_FALSE(status.ok()) << mode;
    EXPECT_THAT(status.error().message, HasSubstr("rounded to nearest"));
  }
}
#endif

TEST(SelectIsa, NamesWhatIsThereAndRefusesTheRest) {
  EXPECT_EQ(cpu::isa_names().back(), "scalar");
  for (const cpu::IsaState& state : cpu::isa_states()) {
    const auto table = cpu::select_isa(state.name);
    ASSERT_EQ(table.ok(), state.unusable_because.empty());
    if (table.ok()) continue;
    EXPECT_THAT(table.error().message, HasSubstr("cannot be used"));
  }
  const auto unknown = cpu::select_isa("abacus");
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().expected, HasSubstr("scalar"));
}

TEST(SelectIsa, TheWidestIsTheDefault) {
  EXPECT_EQ(cpu::default_isa(), cpu::isa_names().front());
}

TEST(SelectIsa, TheEnvironmentDecidesOnlyWhereNothingIsAsked) {
  const std::string best(cpu::default_isa());
  ASSERT_EQ(setenv("NIBBLE_ISA", "scalar", 1), 0);
  EXPECT_STREQ(cpu::select_isa("auto").value()->isa, "scalar");
  EXPECT_EQ(cpu::select_isa(best).value()->isa, best);
  ASSERT_EQ(setenv("NIBBLE_ISA", "abacus", 1), 0);
  EXPECT_FALSE(cpu::select_isa("").ok());
  ASSERT_EQ(unsetenv("NIBBLE_ISA"), 0);
  EXPECT_EQ(cpu::select_isa("auto").value()->isa, best);
}

TEST(Registry, AbsentBackendsSayWhy) {
  for (const BackendState& state : backend_states()) {
    if (state.unusable_because.empty()) continue;
    const auto backend = make_backend(state.name, {});
    ASSERT_FALSE(backend.ok());
    EXPECT_THAT(backend.error().message, HasSubstr(state.unusable_because));
    EXPECT_THAT(backend.error().message, HasSubstr(std::string(state.name)));
  }
  EXPECT_FALSE(make_backend("abacus", {}).ok());
  EXPECT_FALSE(make_backend("cpu", {.n_threads = -1}).ok());
  const auto without_isas = make_backend("reference", {.isa = "scalar"});
  ASSERT_FALSE(without_isas.ok());
  EXPECT_THAT(without_isas.error().message, HasSubstr("no instruction sets to choose"));
  const auto backend = make_backend("cpu", {.isa = "scalar", .n_threads = 2});
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ((*backend)->description(), "cpu scalar, 2 threads");
}

}  // namespace
}  // namespace nibble::kernels
