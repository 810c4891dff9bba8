// Loading on a GPU whose calls fail, one after the other: an error with the call, the tensor and the device, and a
// backend that loads the next time it is asked. What admit counts is what the device then holds.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "engine/loaded_model.h"
#include "engine/session.h"
#include "kernels/registry.h"
#include "tests/cuda_emulation/emulator.h"
#include "tests/engine/tiny_model.h"
#include "tests/kernels/linear_cases.h"
#include "tests/oracle/golden_inputs.h"

namespace nibble::kernels::test {
namespace {

using cuda_emulation::calls_until_failure;
using cuda_emulation::set_failing_call;
using cuda_emulation::used_bytes;
using ::testing::HasSubstr;

constexpr DType kRowTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0, DType::kF8_E4M3FN,
                               DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ2_K,
                               DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};
constexpr ActivationFormat kFormats[] = {ActivationFormat::kA11, ActivationFormat::kA16Q8, ActivationFormat::kW4A4,
                                         ActivationFormat::kNative, ActivationFormat::kNativeFp4};

// A matrix of a type, and what it takes in the file.
struct Matrix {
  std::vector<std::byte> bytes;
  Nvfp4Operand nvfp4;
  WeightSource source;
  WeightShape shape;
};

Matrix make_matrix(DType dtype, int n_out, int n_in) {
  Random random(7);
  Matrix m;
  m.shape = {dtype, static_cast<std::uint64_t>(n_out), static_cast<std::uint64_t>(n_in), 0};
  if (dtype == DType::kNVFP4_E2M1) {
    m.nvfp4 = make_nvfp4(random, {n_in, n_out, 1}, Scales::kLikely, 0.5F);
    m.nvfp4.view.input_scale_inv = 2.0F;
    m.source = m.nvfp4.view;
    m.shape.bytes = m.nvfp4.codes.size() + m.nvfp4.scales.size();
    return m;
  }
  const std::size_t n = std::size_t{1} * n_out * n_in;
  if (dtype == DType::kF8_E4M3FN) {
    static constexpr float kScale = 1.0F;
    m.bytes.resize(n);
    m.source = Fp8View{.name = "rows",
                       .rows = m.shape.rows,
                       .cols = m.shape.cols,
                       .codes = {reinterpret_cast<const std::uint8_t*>(m.bytes.data()), n},
                       .scales = {&kScale, 1},
                       .scale_rows = m.shape.rows,
                       .scale_cols = m.shape.cols};
    m.shape.bytes = n;
    return m;
  }
  const bool is_plain = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
  m.bytes =
      is_plain ? std::vector<std::byte>(n * (dtype == DType::kF32 ? 4 : 2)) : oracle::golden::quant_row(3, dtype, n);
  m.source = TensorView{"rows", dtype, {m.shape.cols, m.shape.rows}, m.bytes};
  m.shape.bytes = m.bytes.size();
  return m;
}

class CudaEmulationLoad : public ::testing::Test {
 protected:
  ~CudaEmulationLoad() override { set_failing_call(0); }
  // Lets the first call fail, then the second, and so on, until `what` needs no more calls. Returns how many it needs.
  template <typename What>
  int fail_each_call(const What& what) {
    int n = 0;
    while (true) {
      set_failing_call(++n);
      const bool has_failed = what(n);
      EXPECT_EQ(calls_until_failure() == 0, has_failed) << "an error of another call, or none of this one";
      set_failing_call(0);
      if (!has_failed) return n - 1;
    }
  }
};

void expect_named(const Error& error, const std::string& tensor, const char* way_out = "{backend=cpu}") {
  EXPECT_THAT(error.message, HasSubstr(" failed on emulated CUDA (device 0): "));
  EXPECT_THAT(error.found, HasSubstr("cudaErrorUnknown ("));
  EXPECT_EQ(error.tensor, tensor);
  EXPECT_THAT(error.hint, HasSubstr(way_out));
}

TEST_F(CudaEmulationLoad, AnyCallOfAnyMatrixMayFail) {
  const auto backend = std::move(make_backend("cuda", {})).value();
  std::vector<DType> dtypes(std::begin(kRowTypes), std::end(kRowTypes));
  dtypes.push_back(DType::kNVFP4_E2M1);
  for (const DType dtype : dtypes) {
    const bool is_super = dtype_info(dtype).block_size == 256;
    const Matrix m = make_matrix(dtype, 17, is_super ? 256 : dtype == DType::kBF16 ? 72 : 96);  // 72: padded rows
    const std::string name = dtype == DType::kNVFP4_E2M1 ? "w" : "rows";
    const std::size_t before = used_bytes();
    const int calls = fail_each_call([&](int) {
      const auto made = backend->make_linear(m.source);
      if (made.ok()) return false;
      expect_named(made.error(), name);
      return true;
    });
    EXPECT_GE(calls, 4) << dtype_name(dtype);
    EXPECT_EQ(used_bytes(), before) << dtype_name(dtype) << ": memory stays behind";
    if (dtype == DType::kNVFP4_E2M1) continue;
    EXPECT_GE(fail_each_call([&](int) {
                const auto made = backend->make_embedding(m.source);
                if (made.ok()) return false;
                expect_named(made.error(), name);
                return true;
              }),
              4);
  }
  EXPECT_TRUE(backend->fault().ok());
}

TEST_F(CudaEmulationLoad, WhatComesWithoutAResultIsAskedFor) {
  const auto backend = std::move(make_backend("cuda", {})).value();
  const std::vector<float> values(64, 1.0F);
  const std::function<void()> makers[] = {
      [&] { backend->make_buffer(100); }, [&] { backend->make_vector(values); },
      [&] { backend->make_linear_input(3, 80); },
      [&] { backend->make_kv_cache({.n_layers = 1, .n_kv_heads = 1, .head_dim = 16, .capacity = 10}); },
      [&] { backend->make_rope_table(values, 16, false); }};
  for (const auto& make : makers) {
    for (const ActivationFormat format : kFormats) {
      if (!backend->use_activations(format).ok()) continue;  // native-fp4 on most GPUs
      EXPECT_GE(fail_each_call([&](int) {
                  make();
                  const Status made = backend->made();
                  if (made.ok()) return false;
                  expect_named(made.error(), "", is_native(format) ? "{contract=nc1}" : "{backend=cpu}");
                  EXPECT_TRUE(backend->made().ok()) << "said twice";
                  return true;
                }),
                2);
    }
  }
  // Whoever did not ask gets no step out of it.
  set_failing_call(1);
  const auto x = backend->make_buffer(4);
  EXPECT_EQ(x->size(), 4U);
  backend->begin_step(1);
  backend->add(x->data(), x->data(), 4);
  EXPECT_TRUE(backend->end_step().empty());
  EXPECT_THAT(backend->fault().error().message, HasSubstr("cudaMalloc failed"));
}

// Of a whole model: calls before there is a backend, while its weights are loaded, and while a session is made.
TEST_F(CudaEmulationLoad, AnyPartOfAWholeModelMayFail) {
  const std::string path = testing::write_tiny_model(
      {.architecture = "qwen2", .d_model = 256, .d_ff = 288, .n_heads = 4, .head_dim = 64, .lane = Lane::kMixed},
      "load.gguf");
  constexpr int kMany = 1 << 30;
  const auto calls = [] { return kMany - calls_until_failure(); };
  set_failing_call(kMany);
  ASSERT_TRUE(make_backend("cuda", {}).ok());
  const int of_backend = calls();
  set_failing_call(kMany);
  const auto loaded = std::move(engine::load(path, {.backend = "cuda"})).value();
  const int of_model = calls() - of_backend;
  const auto make_session = [&] { return engine::Session::create(*loaded->model, {.n_ctx = 64, .prefill_chunk = 8}); };
  ASSERT_TRUE(make_session().ok());
  const int of_session = calls() - of_backend - of_model;

  for (const int n : {1, of_backend / 3, of_backend}) {
    set_failing_call(n);
    const auto made = make_backend("cuda", {});
    ASSERT_FALSE(made.ok()) << n;
    EXPECT_THAT(made.error().to_string(), HasSubstr("emulated CUDA (device 0)"));
  }
  for (const int part : {1, 2, 3}) {
    set_failing_call(of_backend + of_model * part / 3);
    const auto made = engine::load(path, {.backend = "cuda"});
    ASSERT_FALSE(made.ok()) << part;
    EXPECT_THAT(made.error().message, HasSubstr(" failed on emulated CUDA (device 0)"));
    EXPECT_EQ(made.error().file, path);
    EXPECT_THAT(made.error().tensor, HasSubstr(".weight"));
  }
  EXPECT_EQ(fail_each_call([&](int) { return !make_session().ok(); }), of_session);
  EXPECT_TRUE(make_session().ok());
}

// A whole model under native-fp4 where there are FP4 tensor cores: near w4a4, whose sums do not round. Elsewhere an
// error that names the GPU, and never another arithmetic.
TEST_F(CudaEmulationLoad, NativeFp4RunsAWholeModelOrNamesTheGpu) {
  const std::string path = testing::write_tiny_model({.muser_keys = true, .input_scales = true}, "fp4.gguf");
  const bool has_fp4 = cuda_emulation::gpu().capability / 10 == 12;
  for (const char* backend : {"cuda", "auto"}) {
    const auto loaded = engine::load(path, {.backend = backend, .contract = "native-fp4"});
    ASSERT_EQ(loaded.ok(), has_fp4);
    if (has_fp4) continue;
    EXPECT_THAT(loaded.error().to_string(), HasSubstr(std::string(backend) == "cuda" ? ", sm_" : "native-fp4"));
    EXPECT_THAT(loaded.error().hint, HasSubstr("{contract="));
  }
  if (!has_fp4) return;
  std::vector<float> logits[2];
  for (const char* contract : {"native-fp4", "w4a4"}) {
    const auto loaded = std::move(engine::load(path, {.backend = "cuda", .contract = contract})).value();
    const auto session = std::move(engine::Session::create(*loaded->model, {.n_ctx = 64, .prefill_chunk = 8})).value();
    const std::int32_t prompt[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
    ASSERT_TRUE(session->prefill(prompt).ok());
    const auto last = session->logits();
    logits[contract == std::string("w4a4")].assign(last.begin(), last.end());
  }
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < logits[0].size(); ++i) {
    difference += std::pow(double{logits[0][i]} - double{logits[1][i]}, 2);
    size += std::pow(double{logits[1][i]}, 2);
  }
  EXPECT_LT(std::sqrt(difference / size), 0.05);
  EXPECT_GT(size, 0);
}

TEST_F(CudaEmulationLoad, AdmitCountsWhatTheDeviceHolds) {
  for (const char* route : {"auto", "integers"}) {
    const auto backend = std::move(make_backend("cuda", {.cuda_route = route})).value();
    const auto expect_counted = [&](DType dtype, int n_out, int n_in) {
      const Matrix m = make_matrix(dtype, n_out, n_in);
      const std::size_t before = used_bytes();
      const auto made = backend->make_linear(m.source);
      ASSERT_TRUE(made.ok());
      EXPECT_EQ(used_bytes() - before, backend->weight_bytes(m.shape))
          << dtype_name(dtype) << ' ' << n_out << ' ' << n_in;
    };
    for (const DType dtype : kRowTypes) {
      expect_counted(dtype, 17, 512);
      if (dtype_info(dtype).block_size == 1) expect_counted(dtype, 3, 72);
    }
    for (const ActivationFormat format : kFormats) {
      if (!backend->use_activations(format).ok()) continue;  // native without tensor cores of its kind
      for (const int n_in : {16, 80, 576}) expect_counted(DType::kNVFP4_E2M1, 33, n_in);
    }
    // Twice the file's, which is why it has to be counted.
    const Matrix q2 = make_matrix(DType::kQ2_K, 16, 1024);
    EXPECT_GT(backend->weight_bytes(q2.shape), q2.shape.bytes * 19 / 10);

    const KvShape shape{.n_layers = 2, .n_kv_heads = 3, .head_dim = 72, .capacity = 130};
    const std::size_t before = used_bytes();
    const auto cache = backend->make_kv_cache(shape);
    EXPECT_EQ(used_bytes() - before, backend->kv_cache_bytes(shape));
    EXPECT_EQ(cache->bytes(), backend->kv_cache_bytes(shape));
  }
}

}  // namespace
}  // namespace nibble::kernels::test
