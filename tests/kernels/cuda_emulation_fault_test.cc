// A GPU that is lost in the middle of the work: an error with the call and the device, through the seam and through a
// whole model, and a backend that refuses from then on.
#include <gmock/gmock.h>

#include <numeric>

#include "engine/generate.h"
#include "engine/loaded_model.h"
#include "kernels/registry.h"
#include "tests/cuda_emulation/emulator.h"
#include "tests/engine/tiny_model.h"
#include "tests/kernels/backend_fixture.h"

namespace nibble::kernels::test {
namespace {

using cuda_emulation::Fault;
using cuda_emulation::set_fault;
using ::testing::HasSubstr;

class CudaEmulationFault : public ::testing::TestWithParam<bool> {
 protected:
  ~CudaEmulationFault() override { set_fault(Fault::kNone); }
};

void expect_lost(const Status& status) {
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("the GPU failed in a step of"));
  EXPECT_THAT(status.error().message, HasSubstr("emulated CUDA (device 0)"));
  EXPECT_THAT(status.error().found, HasSubstr("cudaErrorIllegalAddress"));
  EXPECT_THAT(status.error().expected, HasSubstr("cannot be used any more"));
  EXPECT_THAT(status.error().hint, HasSubstr("{backend=cpu}"));
}

TEST_P(CudaEmulationFault, IsReportedBehindTheStep) {
  const auto backend = std::move(make_backend("cuda", {.cuda_graphs = GetParam()})).value();
  const std::vector<float> ones(100, 1.0F);
  const auto x = backend->make_vector(ones), y = backend->make_vector(ones);
  const auto step = [&](int n_flags) {
    backend->begin_step(n_flags);
    backend->add(x->data(), y->data(), 100);
    return backend->end_step().size();
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(4), 4U);  // the third replays a graph
  EXPECT_TRUE(backend->fault().ok());

  set_fault(Fault::kLost);
  EXPECT_EQ(step(4), 0U);
  expect_lost(backend->fault());
  set_fault(Fault::kNone);  // it does not come back
  std::vector<float> out(100, 7.0F);
  backend->read(x->data(), out);
  EXPECT_EQ(out, std::vector<float>(100, 7.0F));
  EXPECT_EQ(step(1 << 20), 0U);
  expect_lost(backend->fault());
  expect_lost(backend->admit({}));
}

TEST_P(CudaEmulationFault, OfANativeContractNamesNoOtherBackend) {
  const auto backend = std::move(make_backend("cuda", {.cuda_graphs = GetParam()})).value();
  ASSERT_TRUE(backend->use_activations(ActivationFormat::kNative).ok());
  const auto x = backend->make_buffer(100);
  set_fault(Fault::kLost);
  std::vector<float> out(100);
  backend->read(x->data(), out);
  ASSERT_FALSE(backend->fault().ok());
  EXPECT_THAT(backend->fault().error().hint,
              ::testing::AllOf(HasSubstr("start the program again"), HasSubstr("{contract=nc1}"),
                               ::testing::Not(HasSubstr("{backend="))));
}

TEST_P(CudaEmulationFault, IsReportedBehindARead) {
  const auto backend = std::move(make_backend("cuda", {.cuda_graphs = GetParam()})).value();
  const auto x = backend->make_buffer(100);
  set_fault(Fault::kLost);
  std::vector<float> out(100);
  backend->read(x->data(), out);
  expect_lost(backend->fault());
}

TEST_P(CudaEmulationFault, EndsARequestWithAnError) {
  const std::string path = testing::write_tiny_model({}, "fault.gguf");
  const auto loaded =
      std::move(engine::load(path, {.backend = "cuda", .machine = {.cuda_graphs = GetParam()}})).value();
  const auto session = std::move(engine::Session::create(*loaded->model, {.n_ctx = 64, .prefill_chunk = 8})).value();
  std::vector<std::int32_t> prompt(10);
  std::iota(prompt.begin(), prompt.end(), 1);
  EXPECT_TRUE(session->prefill(prompt).ok());
  set_fault(Fault::kLost);
  prompt.push_back(3);
  expect_lost(session->prefill(prompt));
  expect_lost(session->prefill(prompt));
  const auto another = engine::Session::create(*loaded->model, {.n_ctx = 64, .prefill_chunk = 8});
  ASSERT_FALSE(another.ok());
  EXPECT_THAT(another.error().message, HasSubstr("the GPU failed in a step of"));
}

INSTANTIATE_TEST_SUITE_P(Graphs, CudaEmulationFault, ::testing::Bool());

}  // namespace
}  // namespace nibble::kernels::test
