#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <string>
#include <variant>

#include "base/check.h"
#include "base/machine.h"
#include "format/nc1.h"
#include "kernels/cpu/canary.h"
#include "kernels/cpu/cpu_backend_class.h"
#include "kernels/cpu/detect.h"
#include "tensor/quant_block.h"

namespace nibble::kernels::cpu {
namespace {

// Below these sizes an op is not worth waking a thread for.
constexpr std::size_t kElementGrain = 8192;
constexpr int kSegment = 1024;  // of a row, in values; a multiple of a block
constexpr std::size_t kSegmentGrain = 2;
// What a thread takes at a time of a linear layer, at least. One token: so many weights that the first misses of their
// streams are little beside them, and tiles in pairs, which are read together. Several: the rows that meet a panel's
// activations while these are in a cache.
constexpr std::size_t kRangeWeights = std::size_t{1} << 17;
constexpr std::size_t kRangeTilesOfSeveral = 32;

// False for NaN, and for what rounds to an infinity.
bool fits_f16(float x) {
  return format::abs_bits(x) < format::float_bits(65520.0F);
}

CpuLinearInput& start_input(const float* x, int n_rows, LinearInput& input) {
  auto& in = static_cast<CpuLinearInput&>(input);
  NIBBLE_CHECK(n_rows > 0 && n_rows <= in.max_rows, "more rows than the linear input was made for");
  in.n_rows = n_rows;
  in.x = x;
  return in;
}

std::size_t tiles_of(const Linear& weights) {
  return (static_cast<std::size_t>(weights.n_out) + kTileRows - 1) / kTileRows;
}

std::size_t range_tiles(const CpuLinearInput& in) {
  if (in.n_rows > 1) return kRangeTilesOfSeveral;
  const std::size_t of_pair = std::size_t{2} * kTileRows * static_cast<std::size_t>(in.n_in);
  return 2 * ((kRangeWeights + of_pair - 1) / of_pair);
}

// w4a4: the integers of the input for these weights.
void run_linear(const KernelTable& table, const CpuLinear& weights, const CpuLinearInput& in, ActivationFormat format,
                const std::int16_t* w4a4, const LinearJob& job) {
  Activations x = in.view(in.a11);
  if (const auto* nvfp4 = std::get_if<Nvfp4Linear>(&weights.form)) {
    if (format == ActivationFormat::kA16Q8) return table.linear_nvfp4_a16q8(nvfp4->weights, in.view(in.a16q8), job);
    if (format == ActivationFormat::kW4A4) {
      x.q = w4a4;
      return table.linear_w4a4(nvfp4->weights, x, job);
    }
    table.linear_nvfp4(nvfp4->weights, x, job);
  } else if (const auto* rows16 = std::get_if<Rows16Linear>(&weights.form)) {
    table.linear_rows16(rows16->weights, x, job);
  } else if (const auto* q8 = std::get_if<Q8Linear>(&weights.form)) {
    table.linear_q8_0(q8->weights, x, job);
  } else if (const auto* fp8 = std::get_if<Fp8Linear>(&weights.form)) {
    table.linear_fp8(fp8->weights, x, job);
  } else if (const auto* quant = std::get_if<QuantLinear>(&weights.form)) {
    table.linear_quant[quant->type](quant->weights, x, job);
  } else {
    table.linear_f32(std::get<F32Linear>(weights.form).weights, x, job);
  }
}

}  // namespace

std::unique_ptr<LinearInput> CpuBackend::make_linear_input(int max_rows, int n_in) {
  NIBBLE_CHECK(max_rows > 0 && n_in > 0, "a linear input has rows and columns");
  const int n_blocks = (n_in + format::nc1::kBlock - 1) / format::nc1::kBlock;
  reserve_scratch(std::max(linear_scratch_floats(max_rows, n_blocks), table_.tile_scratch_floats));
  auto input = std::make_unique<CpuLinearInput>(max_rows, n_in, activations_, table_.takes_planes);
  const std::size_t w4a4_size = 2 * input->a11.q.size();
  if (activations_ == ActivationFormat::kW4A4 && w4a4_.size() < w4a4_size) {
    w4a4_ = AlignedBuffer<std::int16_t>(w4a4_size);
  }
  return input;
}

Result<std::unique_ptr<Linear>> CpuBackend::make_linear(const WeightSource& weights) {
  NIBBLE_ASSIGN(std::unique_ptr<Linear> linear, make_cpu_linear(weights, table_, pool_, arena_, activations_));
  const auto& form = static_cast<const CpuLinear&>(*linear).form;
  needs_sums_ |= std::holds_alternative<QuantLinear>(form);
  needs_a11_ |= !std::holds_alternative<Nvfp4Linear>(form) && !std::holds_alternative<F32Linear>(form);
  return linear;
}

void CpuBackend::embed(const Embedding& embedding, std::span<const std::int32_t> tokens, float* out) {
  const WeightSource& rows = static_cast<const HostEmbedding&>(embedding).rows;
  const int n = embedding.d_model;
  for_each(tokens.size(), kTokenGrain, [&](std::size_t i, int) {
    NIBBLE_CHECK(tokens[i] >= 0 && tokens[i] < embedding.vocab_size, "a token outside of the vocabulary");
    float* to = out + i * n;
    if (const auto* fp8 = std::get_if<Fp8View>(&rows)) return fp8_row_to_f32(*fp8, tokens[i], to);
    const TensorView& table = std::get<TensorView>(rows);
    const std::byte* row = table.row_span(tokens[i]).data();
    switch (table.dtype) {
      case DType::kF16:
        return table_.embed_f16(reinterpret_cast<const std::uint16_t*>(row), n, to);
      case DType::kBF16:
        return table_.embed_bf16(reinterpret_cast<const std::uint16_t*>(row), n, to);
      case DType::kQ8_0:
        return table_.embed_q8_0(reinterpret_cast<const std::uint8_t*>(row), n, to);
      case DType::kF32:
        return static_cast<void>(std::copy_n(reinterpret_cast<const float*>(row), n, to));
      default:
        quant_row_to_f32(*find_quant_format(table.dtype), table.row_span(tokens[i]), to);
    }
  });
}

void CpuBackend::rms_norm(const float* x, const float* weight, int n_rows, int dim, float eps, float* out) {
  for_each(n_rows, kTokenGrain,
           [&](std::size_t i, int) { table_.rms_norm(x + i * dim, weight, dim, eps, out + i * dim); });
}

void CpuBackend::add_norm_input(float* x, const float* y, const float* weight, int n_rows, int dim, float eps,
                                float* normed, LinearInput& input) {
  auto& in = start_input(normed, n_rows, input);
  for_each(n_rows, kTokenGrain, [&](std::size_t i, int) {
    if (y != nullptr) table_.add(x + i * dim, y + i * dim, dim);
    table_.rms_norm(x + i * dim, weight, dim, eps, normed + i * dim);
    quantize(normed + i * dim, dim, i, 0, in);
  });
}

void CpuBackend::prepare_input(const float* x, int n_rows, LinearInput& input) {
  auto& in = start_input(x, n_rows, input);
  for_each(n_rows, kTokenGrain, [&](std::size_t i, int) { quantize(x + i * in.n_in, in.n_in, i, 0, in); });
}

// Rows are cut, so that one token's row is work for all threads.
void CpuBackend::gate_input(Gate gate_mul, const float* gate, const float* up, int n_rows, int dim, float* out,
                            LinearInput& input) {
  auto& in = start_input(out, n_rows, input);
  const int n_segments = (dim + kSegment - 1) / kSegment;
  for_each(static_cast<std::size_t>(n_rows) * n_segments, kSegmentGrain, [&](std::size_t task, int) {
    const std::size_t row = task / n_segments;
    const int begin = static_cast<int>(task % n_segments) * kSegment;
    const int n = std::min(kSegment, dim - begin);
    const std::size_t at = row * dim + begin;
    gate_mul(gate + at, up + at, n, out + at);
    quantize(out + at, n, row, begin / format::nc1::kBlock, in);
  });
}

// n values of a row, from the start of its block `first_block` on.
void CpuBackend::quantize(const float* x, int n, std::size_t row, int first_block, CpuLinearInput& in) {
  const std::size_t stride = static_cast<std::size_t>(in.n_rows) * format::nc1::kBlock;
  const std::size_t at = first_block * stride + row * format::nc1::kBlock;
  const auto into = [&](Integers& to, auto quantize_row) {
    PlaneBlock* planes = in.n_rows <= in.max_planes ? to.planes.data() + at / format::nc1::kBlock : nullptr;
    flag_row(in.first_flag + row,
             quantize_row(x, n, stride, to.q.data() + at, planes, to.d.data() + at / format::nc1::kBlock));
  };
  if (activations_ == ActivationFormat::kA16Q8) into(in.a16q8, table_.quantize_a16q8);
  if (activations_ == ActivationFormat::kW4A4) flag_row(in.first_flag + row, !std::all_of(x, x + n, fits_f16));
  if (activations_ == ActivationFormat::kA11 || needs_a11_) into(in.a11, table_.quantize_a11);
  if (needs_sums_) {
    const int n_blocks = (n + format::nc1::kBlock - 1) / format::nc1::kBlock;
    std::int16_t* sums = in.sums.data() + at / format::nc1::kBlock * kSumsPerBlock;
    table_.sum_groups(in.a11.q.data() + at, n_blocks, stride, sums);
  }
}

void CpuBackend::quantize_w4a4(const CpuLinearInput& in, const CpuLinear& linear) {
  const auto* nvfp4 = std::get_if<Nvfp4Linear>(&linear.form);
  if (nvfp4 == nullptr) return;
  NIBBLE_CHECK(in.n_in == linear.n_in, "a linear layer meets an input of another width");
  for_each(in.n_rows, kTokenGrain, [&](std::size_t i, int) {
    table_.quantize_w4a4(in.x + i * in.n_in, in.n_in, nvfp4->weights.input_scale_inv,
                         std::size_t{2} * format::nc1::kBlock * in.n_rows, w4a4_.data() + 2 * format::nc1::kBlock * i);
  });
}

void CpuBackend::linears(const LinearInput& input, std::span<const LinearCall> calls) {
  const auto& in = static_cast<const CpuLinearInput&>(input);
  if (activations_ == ActivationFormat::kW4A4) {  // each wants the input in its own way
    for (const LinearCall& call : calls.first(calls.size() - 1)) linears(input, {&call, 1});
    calls = calls.last(1);
    quantize_w4a4(in, static_cast<const CpuLinear&>(*calls[0].weights));
  }
  std::size_t n_tiles = 0;
  for (const LinearCall& call : calls) {
    NIBBLE_CHECK(in.n_in == call.weights->n_in && in.n_rows > 0, "a linear layer meets an input of another width");
    n_tiles += tiles_of(*call.weights);
  }
  // The tiles of all layers stand in one row, so that threads meet once for all of them.
  const auto run = [&](std::size_t begin, std::size_t end, int thread) {
    std::size_t first = 0;  // tile of the whole row where this layer starts
    for (const LinearCall& call : calls) {
      const std::size_t n = tiles_of(*call.weights);
      const std::size_t from = std::max(begin, first), to = std::min(end, first + n);
      if (from < to) {
        run_linear(table_, static_cast<const CpuLinear&>(*call.weights), in, activations_, w4a4_.data(),
                   {.bias = call.bias,
                    .out = call.out,
                    .scratch = scratch_[thread].data(),
                    .row_begin = static_cast<int>(from - first) * kTileRows,
                    .row_end = std::min(static_cast<int>(to - first) * kTileRows, call.weights->n_out)});
      }
      first += n;
    }
  };
  pool_.parallel_for(n_tiles, 1, range_tiles(in), run);
}

void CpuBackend::gate_all(Gate gate_mul, const float* gate, const float* up, std::size_t n, float* out) {
  const auto run = [&](std::size_t begin, std::size_t end, int) {
    gate_mul(gate + begin, up + begin, end - begin, out + begin);
  };
  pool_.parallel_for(n, kElementGrain, run);
}

void CpuBackend::scale(float* x, float factor, std::size_t n) {
  const auto run = [&](std::size_t begin, std::size_t end, int) { table_.scale(x + begin, factor, end - begin); };
  pool_.parallel_for(n, kElementGrain, run);
}

void CpuBackend::add(float* x, const float* y, std::size_t n) {
  const auto run = [&](std::size_t begin, std::size_t end, int) { table_.add(x + begin, y + begin, end - begin); };
  pool_.parallel_for(n, kElementGrain, run);
}

void CpuBackend::add_rows(const float* x, const float* y, std::span<const std::int32_t> indices, int dim, float* out) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::size_t at = static_cast<std::size_t>(indices[i]) * dim;
    std::copy_n(x + at, dim, out + i * dim);
    table_.add(out + i * dim, y + at, dim);
  }
}

std::unique_ptr<Backend> make_backend_of(const KernelTable& table, int n_threads, bool pins_threads) {
  return std::make_unique<CpuBackend>(table, n_threads, pins_threads);
}

}  // namespace nibble::kernels::cpu

namespace nibble::kernels {

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options) {
  constexpr int kMaxThreads = 1024;
  int n_threads = options.n_threads;
  if (n_threads == 0) n_threads = hardware_threads();
  if (n_threads < 1 || n_threads > kMaxThreads) {
    return Error{.message = "a number of threads that cannot be",
                 .found = std::to_string(n_threads),
                 .expected = "1 to " + std::to_string(kMaxThreads) + ", or 0 for one per hardware thread"};
  }
  NIBBLE_ASSIGN(const cpu::KernelTable* table, cpu::select_isa(options.isa));
  NIBBLE_TRY(cpu::run_canary(*table));
  return cpu::make_backend_of(*table, n_threads, options.pins_threads);
}

}  // namespace nibble::kernels
