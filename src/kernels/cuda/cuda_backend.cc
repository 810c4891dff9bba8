#include "kernels/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "kernels/cuda/canary.h"
#include "kernels/optional_backends.h"

namespace nibble::kernels::cuda {
namespace {

constexpr std::size_t kReserve = std::size_t{256} << 20;  // for graphs, sums of attention and what rounding up costs

// Over what the sums of NVFP4 layers on f16 tensor cores go.
Nvfp4Sums nvfp4_sums(ActivationFormat format) {
  if (format == ActivationFormat::kNative) return Nvfp4Sums::kFree;
  return format == ActivationFormat::kA16Q8 ? Nvfp4Sums::kSuperBlocks : Nvfp4Sums::kBlocks;
}

}  // namespace

Status CudaBackend::admit(const MemoryNeed& need) {
  NIBBLE_TRY(fault());
  std::size_t free = 0, total = 0;
  NIBBLE_TRY(hint_for(activations_, check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo")));
  return hint_for(activations_, check_fits(need, free > kReserve ? free - kReserve : 0, total, device_.name));
}

Status CudaBackend::use_activations(ActivationFormat format) {
  if (is_native(format) && !use_tensor_cores_) {
    return Error{.message = "native contracts are about tensor cores, which this cuda backend was told not to use",
                 .found = "route integers",
                 .expected = "auto, gemv, gemm or gemm-mma"};
  }
  if (format == ActivationFormat::kNativeFp4) NIBBLE_TRY(hint_for(format, check_fp4(device_, stream_)));
  activations_ = format;
  loader_.use_activations(format);
  return ok_status();
}

void CudaBackend::note(Status made) {
  if (made_.ok()) made_ = std::move(made);
}

std::unique_ptr<Buffer> CudaBackend::make_buffer(std::size_t n_floats) {
  auto buffer = std::make_unique<CudaBuffer>(n_floats);
  note([&]() -> Status {
    NIBBLE_ASSIGN(buffer->memory, make_zeros(n_floats * sizeof(float), fmt::format("{} floats", n_floats), stream_));
    return ok_status();
  }());
  return buffer;
}

std::unique_ptr<Buffer> CudaBackend::make_vector(std::span<const float> values) {
  auto buffer = std::make_unique<CudaBuffer>(values.size());
  note(make_copy(buffer->memory, values, "a vector"));
  return buffer;
}

std::unique_ptr<RopeTable> CudaBackend::make_rope_table(std::span<const float> cos_sin, int rotary_dim,
                                                        bool interleaved) {
  NIBBLE_CHECK(rotary_dim > 0 && rotary_dim % 2 == 0 && cos_sin.size() % rotary_dim == 0,
               "a rope table has whole rows");
  auto table = std::make_unique<CudaRopeTable>();
  table->n_positions = static_cast<int>(cos_sin.size() / rotary_dim);
  table->rotary_dim = rotary_dim;
  table->interleaved = interleaved;
  note(make_copy(table->cos_sin, cos_sin, "a rope table"));
  return table;
}

Status CudaBackend::make_copy(DeviceMemory& memory, std::span<const float> values, const char* what) {
  NIBBLE_ASSIGN(memory, DeviceMemory::allocate(values.size_bytes(), what));
  return loader_.uploader().upload(memory.as<void>(), std::as_bytes(values));
}

std::unique_ptr<LinearInput> CudaBackend::make_linear_input(int max_rows, int n_in) {
  auto input = std::make_unique<CudaLinearInput>();
  input->n_in = n_in;
  input->format = activations_;
  note(allocate_input(*input, max_rows, use_tensor_cores_, stream_));
  return input;
}

std::unique_ptr<KvCache> CudaBackend::make_kv_cache(const KvShape& shape) {
  auto cache = std::make_unique<CudaKvCache>(shape);
  note(cache->allocate(stream_));
  return cache;
}

// Of those who did not ask made(), every step fails.
void CudaBackend::begin_step(int n_flags) {
  if (!made_.ok()) step_.fail(made_.error());
  step_.begin(n_flags);
}

const DeviceRow* CudaBackend::stage_rows(std::span<const TokenRow> rows) {
  rows_.clear();
  for (const TokenRow& row : rows) {
    DeviceRow device_row;
    if (row.cache != nullptr) device_row = static_cast<const CudaKvCache&>(*row.cache).device_row();
    device_row.pos = row.pos;
    rows_.push_back(device_row);
  }
  return step_.stage(std::span<const DeviceRow>(rows_));
}

void CudaBackend::embed(const Embedding& table, std::span<const std::int32_t> tokens, float* out) {
  const Rows& rows = static_cast<const CudaEmbedding&>(table).table->rows;
  const int n = static_cast<int>(tokens.size());
  record("embed", EmbedArgs{rows, step_.stage(tokens), n, out}, {n, rows.n_in, 1, 1});
}

void CudaBackend::rms_norm(const float* x, const float* weight, int n_rows, int dim, float eps, float* out) {
  AddNormArgs args;
  args.x = const_cast<float*>(x);  // written only where y is added
  args.weight = weight;
  args.normed = out;
  args.n_rows = n_rows;
  args.dim = dim;
  args.eps = eps;
  record("rms_norm", args, {n_rows, dim, 1, 1});
}

void CudaBackend::add_norm_input(float* x, const float* y, const float* weight, int n_rows, int dim, float eps,
                                 float* normed, LinearInput& input) {
  auto& in = static_cast<CudaLinearInput&>(input);
  in.n_rows = n_rows;
  in.x = normed;
  record("add_norm_input",
         AddNormArgs{x, y, weight, normed, in.quantized, step_.flags(in.first_flag), n_rows, dim, eps},
         {n_rows, dim, 1, 1});
  prepare_other_formats(in);
}

void CudaBackend::prepare_input(const float* x, int n_rows, LinearInput& input) {
  auto& in = static_cast<CudaLinearInput&>(input);
  in.n_rows = n_rows;
  in.x = x;
  record("prepare_input", QuantizeArgs{x, in.quantized, step_.flags(in.first_flag), n_rows, in.n_in},
         {n_rows, in.n_in, 1, 1});
  prepare_other_formats(in);
}

// After a11 of in.x, which weights of other types meet.
void CudaBackend::prepare_other_formats(const CudaLinearInput& in) {
  const std::array<int, 4> shape = {in.n_rows, in.n_in, 1, 1};
  const Flags flags = step_.flags(in.first_flag);
  if (in.format == ActivationFormat::kA16Q8) {
    record("quantize_a16q8", QuantizeA16Q8Args{in.x, in.a16q8, flags, in.n_rows, in.n_in}, shape);
  } else if (in.format == ActivationFormat::kW4A4 || in.format == ActivationFormat::kNativeFp4) {
    record("check_halves", CheckHalvesArgs{in.x, flags, in.n_rows, in.n_in}, shape);
  }
}

void CudaBackend::linear(const LinearInput& input, const Linear& weights, const float* bias, float* out) {
  const LinearCall call{&weights, bias, out};
  linears(input, {&call, 1});
}

// The input as layers with this input scale want it, where input scales are of weights.
void CudaBackend::encode(const CudaLinearInput& in, float input_scale_inv) {
  const std::array<int, 4> shape = {in.n_rows, in.n_in, 1, 1};
  if (in.format == ActivationFormat::kW4A4) {
    record("quantize_w4a4", QuantizeW4A4Args{in.x, in.w4a4, input_scale_inv, in.n_rows, in.n_in}, shape);
  } else if (in.format == ActivationFormat::kNativeFp4) {
    auto* const packed = in.other_q.as<std::uint8_t>();
    record("quantize_fp4", QuantizeFp4Args{in.x, packed, input_scale_inv, in.n_rows, in.n_in}, shape);
  }
}

// Layers of which each is a launch.
void CudaBackend::record_nvfp4_alone(const CudaLinearInput& in, const DeviceNvfp4& weights, const LinearCall& call) {
  NIBBLE_CHECK(in.format == weights.activations, "NVFP4 weights and their input were made for different contracts");
  const Nvfp4Rows& rows = weights.rows;
  const std::array<int, 4> shape = {in.n_rows, call.weights->n_out, in.n_in, 1};
  switch (in.format) {
    case ActivationFormat::kA11:
      return record("linear_nvfp4_exact", LinearNvfp4Args{rows, in.quantized, call.bias, call.out, in.n_rows}, shape);
    case ActivationFormat::kA16Q8:
      return record("linear_a16q8", LinearA16Q8Args{rows, in.a16q8, call.bias, call.out, in.n_rows}, shape);
    case ActivationFormat::kW4A4:
      if (weights.w4a4.packed == nullptr)
        return record("linear_w4a4", LinearW4A4Args{rows, in.w4a4, call.bias, call.out, in.n_rows}, shape);
      return record("linear_w4a4",
                    LinearW4A4TilesArgs{weights.w4a4, {in.w4a4.q1, in.w4a4.q9}, call.bias, call.out, in.n_rows}, shape);
    case ActivationFormat::kNativeFp4: {
      const auto* const input = in.other_q.as<std::uint8_t>();
      return record("linear_fp4", LinearFp4Args{weights.fp4, input, call.bias, call.out, in.n_rows}, shape);
    }
    case ActivationFormat::kNative:
      NIBBLE_CHECK(false, "contract native has no rows of NVFP4");
  }
}

// Layers of NVFP4 weights that share the input are one launch.
void CudaBackend::linears(const LinearInput& input, std::span<const LinearCall> calls) {
  const auto& in = static_cast<const CudaLinearInput&>(input);
  Nvfp4LinearArgs together;
  together.input = {in.quantized.h, in.quantized.d_columns, in.n_rows,
                    in.n_in,        in.quantized.d_stride,  in.handovers.as<std::uint32_t>()};
  together.n_segments = 0;
  together.route = route_;
  together.is_spread = true;
  together.sums = nvfp4_sums(in.format);
  int n_together = 0;            // outputs
  std::optional<float> encoded;  // the input scale under which the input lies there
  const auto launch_together = [&] {
    if (together.n_segments != 0) record("linear_nvfp4", together, {in.n_rows, n_together, in.n_in, 1});
    together.n_segments = n_together = 0;
  };
  for (const LinearCall& call : calls) {
    NIBBLE_CHECK(in.n_in == call.weights->n_in, "a linear layer and its input differ in width");
    const auto& form = static_cast<const CudaLinear&>(*call.weights).form;
    const auto* nvfp4 = std::get_if<DeviceNvfp4>(&form);
    const int n_out = call.weights->n_out;
    if (nvfp4 == nullptr) {
      const Rows& rows = std::get<std::shared_ptr<const DeviceRows>>(form)->rows;
      record("linear_rows", LinearRowsArgs{rows, in.quantized, in.x, call.bias, call.out, in.n_rows},
             {in.n_rows, n_out, in.n_in, 1});
    } else if (nvfp4->weights.packed == nullptr) {
      if (encoded != nvfp4->input_scale_inv) encode(in, nvfp4->input_scale_inv);
      encoded = nvfp4->input_scale_inv;
      record_nvfp4_alone(in, *nvfp4, call);
    } else {
      NIBBLE_CHECK(in.format == nvfp4->activations, "NVFP4 weights and their input were made for different contracts");
      if (together.n_segments == kNvfp4MaxSegments) launch_together();
      together.segments[together.n_segments++] = {nvfp4->weights, call.bias, call.out, n_out};
      n_together += n_out;
    }
  }
  launch_together();
}

void CudaBackend::gate_all(const char* op, Gate kind, const float* gate, const float* up, std::size_t n, float* out) {
  constexpr std::size_t kRow = std::size_t{1} << 20;  // the kernel counts in rows
  for (std::size_t first = 0; first < n; first += kRow) {
    const auto width = static_cast<int>(std::min(kRow, n - first));
    GateArgs args;
    args.gate = gate + first;
    args.up = up + first;
    args.out = out + first;
    args.n_rows = 1;
    args.dim = width;
    args.kind = kind;
    record(op, args, {1, width, 1, 1});
  }
}

void CudaBackend::gate_input(const char* op, Gate kind, const float* gate, const float* up, int n_rows, int dim,
                             float* out, LinearInput& input) {
  auto& in = static_cast<CudaLinearInput&>(input);
  in.n_rows = n_rows;
  in.x = out;
  record(op, GateArgs{gate, up, out, in.quantized, step_.flags(in.first_flag), n_rows, dim, kind}, {n_rows, dim, 1, 1});
  prepare_other_formats(in);
}

void CudaBackend::scale(float* x, float factor, std::size_t n) {
  record("scale", ScaleArgs{x, factor, static_cast<std::int64_t>(n)}, {static_cast<int>(n), 1, 1, 1});
}

void CudaBackend::add(float* x, const float* y, std::size_t n) {
  record("add", AddArgs{x, y, static_cast<std::int64_t>(n)}, {static_cast<int>(n), 1, 1, 1});
}

void CudaBackend::add_rows(const float* x, const float* y, std::span<const std::int32_t> indices, int dim, float* out) {
  const int n = static_cast<int>(indices.size());
  record("add_rows", AddRowsArgs{x, y, step_.stage(indices), out, n, dim}, {n, dim, 1, 1});
}

// Through pinned memory: the driver's own way for pageable memory is slower and waits more often.
void CudaBackend::read(const float* source, std::span<float> destination) {
  NIBBLE_CHECK(!step_.is_open(), "read() inside of a step");
  if (!step_.status().ok()) return;
  if (auto read = try_read(source, destination); !read.ok()) step_.fail(std::move(read).error());
}

Status CudaBackend::try_read(const float* source, std::span<float> destination) {
  if (answers_.size() < destination.size_bytes()) {
    NIBBLE_ASSIGN(answers_, PinnedMemory::allocate(destination.size_bytes()));
  }
  NIBBLE_TRY(
      check(cudaMemcpyAsync(answers_.data(), source, destination.size_bytes(), cudaMemcpyDeviceToHost, stream_.get()),
            "cudaMemcpyAsync", fmt::format("{} floats to the host", destination.size())));
  NIBBLE_TRY(stream_.wait());
  std::memcpy(destination.data(), answers_.data(), destination.size_bytes());
  return ok_status();
}

// The route of a name; none for the integer kernels.
namespace {

Result<std::optional<Nvfp4Route>> parse_route(std::string_view name) {
  using Named = std::pair<std::string_view, std::optional<Nvfp4Route>>;
  constexpr Named kRoutes[] = {{"auto", Nvfp4Route::kAuto},
                               {"gemv", Nvfp4Route::kGemv},
                               {"gemm", Nvfp4Route::kGemm},
                               {"gemm-mma", Nvfp4Route::kGemmMmaSync},
                               {"integers", std::nullopt}};
  const auto* known = std::ranges::find(kRoutes, name, &Named::first);
  if (known != std::end(kRoutes)) return known->second;
  return Error{.message = "the cuda backend has no such route for NVFP4 layers",
               .found = std::string(name),
               .expected = "auto, gemv, gemm, gemm-mma or integers"};
}

}  // namespace
}  // namespace nibble::kernels::cuda

namespace nibble::kernels {

std::string why_no_cuda() {
  const auto device = cuda::find_device();
  return device.ok() ? "" : device.error().message;
}

Result<std::unique_ptr<Backend>> make_cuda_backend(const BackendOptions& options) {
  auto device = cuda::find_device();
  if (!device.ok()) {
    Error error = std::move(device).error();
    error.message = "the cuda backend cannot be used here: " + error.message;
    return error;
  }
  NIBBLE_ASSIGN(const auto route, cuda::parse_route(options.cuda_route));
  NIBBLE_ASSIGN(cuda::Stream stream, cuda::Stream::create());
  NIBBLE_TRY(cuda::check_tensor_cores(*device, stream));
  auto backend = std::make_unique<cuda::CudaBackend>(*device, std::move(stream), options.cuda_graphs, route);
  NIBBLE_TRY(cuda::check_digest(*device, *backend));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace nibble::kernels
