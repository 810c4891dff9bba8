#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "format/contract_math.h"
#include "kernels/cuda/buffers.h"
#include "kernels/cuda/canary.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/step.h"
#include "kernels/cuda/weights.h"
#include "kernels/optional_backends.h"

namespace nibble::kernels::cuda {
namespace {

constexpr int kTileQueries = 16;
constexpr int kPromptTileQueries = 64;
constexpr std::size_t kMaxPartialBytes = std::size_t{64} << 20;
constexpr std::size_t kReserve = std::size_t{256} << 20;  // for graphs, sums of attention and what rounding up costs

class CudaBackend final : public Backend {
 public:
  CudaBackend(Device device, bool use_graphs, std::optional<Nvfp4Route> route)
      : device_(std::move(device)),
        route_(route.value_or(Nvfp4Route::kAuto)),
        use_tensor_cores_(route.has_value()),
        loader_(stream_, route.has_value()),
        step_(stream_, use_graphs) {}

  std::string_view name() const override { return "cuda"; }
  std::string description() const override { return "cuda " + device_.description(); }

  bool has(Ability) const override { return true; }
  bool takes(DType dtype) const override { return has_kernel_for(dtype); }
  Status admit(const MemoryNeed& need) override;
  Status use_activations(ActivationFormat format) override;
  std::unique_ptr<Buffer> make_buffer(std::size_t n_floats) override { return make_zeros(n_floats, stream_); }
  std::unique_ptr<Buffer> make_vector(std::span<const float> values) override;
  Result<std::unique_ptr<Linear>> make_linear(const WeightSource& weights) override { return loader_.linear(weights); }
  Result<std::unique_ptr<Embedding>> make_embedding(const TensorView& table) override {
    return loader_.embedding(table);
  }
  std::unique_ptr<LinearInput> make_linear_input(int max_rows, int n_in) override {
    return make_quantized_input(max_rows, n_in, activations_, stream_);
  }
  std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) override {
    return std::make_unique<CudaKvCache>(shape, stream_);
  }
  std::unique_ptr<RopeTable> make_rope_table(std::span<const float> cos_sin, int rotary_dim, bool interleaved) override;

  void begin_step(int n_flags) override { step_.begin(n_flags); }
  std::span<const std::uint8_t> end_step() override {
    const auto flags = step_.end();
    outgrown_.clear();
    return flags;
  }
  Status fault() const override { return step_.status(); }

  void embed(const Embedding& table, std::span<const std::int32_t> tokens, float* out) override;
  void rms_norm(const float* x, const float* weight, int n_rows, int dim, float eps, float* out) override;
  void prepare_input(const float* x, int n_rows, LinearInput& input) override;
  void linear(const LinearInput& input, const Linear& weights, const float* bias, float* out) override;
  void linears(const LinearInput& input, std::span<const LinearCall> calls) override;
  void rope(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows, const RopeTable& table) override;
  void store_kv(const float* k, const float* v, std::span<const TokenRow> rows, int layer) override;
  void attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                 float* out) override;
  void silu_mul(const float* gate, const float* up, std::size_t n, float* out) override {
    gate_all("silu_mul", Gate::kSilu, gate, up, n, out);
  }
  void gelu_mul(const float* gate, const float* up, std::size_t n, float* out) override {
    gate_all("gelu_mul", Gate::kGelu, gate, up, n, out);
  }
  void scale(float* x, float factor, std::size_t n) override;
  void add(float* x, const float* y, std::size_t n) override;
  void add_rows(const float* x, const float* y, std::span<const std::int32_t> indices, int dim, float* out) override;
  void read(const float* source, std::span<float> destination) override;

  void add_norm_input(float* x, const float* y, const float* weight, int n_rows, int dim, float eps, float* normed,
                      LinearInput& input) override;
  void rope_store_kv(float* q, int n_heads, float* k, const float* v, std::span<const TokenRow> rows, int layer,
                     const RopeTable& table) override;
  void attention_input(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                       float* out, LinearInput& input) override;
  void rope_attention_input(float* q, float* k, const float* v, std::span<const TokenRow> rows, int layer,
                            const RopeTable& table, const AttentionShape& shape, float* out,
                            LinearInput& input) override;
  void silu_mul_input(const float* gate, const float* up, int n_rows, int dim, float* out,
                      LinearInput& input) override {
    gate_input("silu_mul_input", Gate::kSilu, gate, up, n_rows, dim, out, input);
  }
  void gelu_mul_input(const float* gate, const float* up, int n_rows, int dim, float* out,
                      LinearInput& input) override {
    gate_input("gelu_mul_input", Gate::kGelu, gate, up, n_rows, dim, out, input);
  }

 private:
  const DeviceRow* stage_rows(std::span<const TokenRow> rows);
  RopeArgs rope_args(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows, const RopeTable& table);
  StoreKvArgs kv_args(float* k, const float* v, std::span<const TokenRow> rows, int layer);
  AttentionArgs attention_args(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                               float* out, CudaLinearInput* input);
  void record_attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                        float* out, CudaLinearInput* input);
  void gate_all(const char* op, Gate kind, const float* gate, const float* up, std::size_t n, float* out);
  void gate_input(const char* op, Gate kind, const float* gate, const float* up, int n_rows, int dim, float* out,
                  LinearInput& input);
  void prepare_other_formats(const CudaLinearInput& in);
  void record_rows_of_nvfp4(const CudaLinearInput& in, const DeviceNvfp4& weights, const LinearCall& call);
  bool are_different_caches(std::span<const TokenRow> rows);
  bool takes_prompt_tiles(std::span<const TokenRow> rows, const AttentionShape& shape) const;
  void* scratch(DeviceMemory& memory, std::size_t bytes, const char* what);
  Status try_read(const float* source, std::span<float> destination);
  template <typename Args>
  void record(const char* name, const Args& args, std::array<int, 4> shape) {
    NIBBLE_CHECK(step_.is_open(), "an op outside of a step");
    step_.record(name, args, shape);
  }

  Device device_;
  Nvfp4Route route_;
  bool use_tensor_cores_;
  Stream stream_;
  ActivationFormat activations_ = ActivationFormat::kA11;
  WeightLoader loader_;
  Step step_;
  std::vector<DeviceRow> rows_;         // scratch
  std::vector<const KvCache*> caches_;  // scratch
  std::vector<DeviceMemory> outgrown_;  // scratch that a step in the making may still use
  DeviceMemory partial_;                // sums of attention; grows
  DeviceMemory arrived_;                // how many thread blocks of a decoded head have ended; zeros, grows
  PinnedMemory answers_;                // what read() brings; grows
};

Status CudaBackend::admit(const MemoryNeed& need) {
  NIBBLE_TRY(fault());
  std::size_t free = 0, total = 0;
  NIBBLE_TRY(check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  return check_fits(need, free > kReserve ? free - kReserve : 0, total, device_.name);
}

Status CudaBackend::use_activations(ActivationFormat format) {
  if (format == ActivationFormat::kNative && !use_tensor_cores_) {
    return Error{.message = "contract native is about tensor cores, which this cuda backend was told not to use",
                 .found = "route integers",
                 .expected = "auto, gemv, gemm or gemm-mma"};
  }
  activations_ = format;
  loader_.use_activations(format);
  return ok_status();
}

std::unique_ptr<Buffer> CudaBackend::make_vector(std::span<const float> values) {
  auto buffer = std::make_unique<CudaBuffer>(
      must_allocate(values.size_bytes(), fmt::format("{} floats", values.size())), values.size());
  loader_.uploader().upload(buffer->data(), std::as_bytes(values));
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
  table->cos_sin = must_allocate(cos_sin.size_bytes(), "a rope table");
  loader_.uploader().upload(table->cos_sin.as<void>(), std::as_bytes(cos_sin));
  return table;
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
  } else if (in.format == ActivationFormat::kW4A4) {
    record("check_halves", CheckHalvesArgs{in.x, flags, in.n_rows, in.n_in}, shape);
  }
}

void CudaBackend::linear(const LinearInput& input, const Linear& weights, const float* bias, float* out) {
  const LinearCall call{&weights, bias, out};
  linears(input, {&call, 1});
}

void CudaBackend::record_rows_of_nvfp4(const CudaLinearInput& in, const DeviceNvfp4& weights, const LinearCall& call) {
  NIBBLE_CHECK(in.format == weights.activations, "NVFP4 weights and their input were made for different contracts");
  const Nvfp4Rows& rows = weights.rows;
  const std::array<int, 4> shape = {in.n_rows, rows.n_out, in.n_in, 1};
  switch (in.format) {
    case ActivationFormat::kA11:
      return record("linear_nvfp4_exact", LinearNvfp4Args{rows, in.quantized, call.bias, call.out, in.n_rows}, shape);
    case ActivationFormat::kA16Q8:
      return record("linear_a16q8", LinearA16Q8Args{rows, in.a16q8, call.bias, call.out, in.n_rows}, shape);
    case ActivationFormat::kW4A4:
      record("quantize_w4a4", QuantizeW4A4Args{in.x, in.w4a4, rows.input_scale_inv, in.n_rows, in.n_in}, shape);
      return record("linear_w4a4", LinearW4A4Args{rows, in.w4a4, call.bias, call.out, in.n_rows}, shape);
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
  together.sums = in.format == ActivationFormat::kNative ? Nvfp4Sums::kFree : Nvfp4Sums::kExact;
  int n_together = 0;  // outputs
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
      record_rows_of_nvfp4(in, *nvfp4, call);
    } else {
      if (together.n_segments == kNvfp4MaxSegments) launch_together();
      together.segments[together.n_segments++] = {nvfp4->weights, call.bias, call.out, n_out};
      n_together += n_out;
    }
  }
  launch_together();
}

RopeArgs CudaBackend::rope_args(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows,
                                const RopeTable& table) {
  const auto* cos_sin = static_cast<const CudaRopeTable&>(table).cos_sin.as<float>();
  return {x,       stage_rows(rows), cos_sin,          static_cast<int>(rows.size()),
          n_heads, head_dim,         table.rotary_dim, table.interleaved};
}

void CudaBackend::rope(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows, const RopeTable& table) {
  record("rope", rope_args(x, n_heads, head_dim, rows, table), {static_cast<int>(rows.size()), n_heads, head_dim, 1});
}

void CudaBackend::store_kv(const float* k, const float* v, std::span<const TokenRow> rows, int layer) {
  record("store_kv", RopeStoreKvArgs{{}, kv_args(const_cast<float*>(k), v, rows, layer)},  // k is not written
         {static_cast<int>(rows.size()), rows[0].cache->shape.n_kv_heads, rows[0].cache->shape.head_dim, layer});
}

void CudaBackend::rope_store_kv(float* q, int n_heads, float* k, const float* v, std::span<const TokenRow> rows,
                                int layer, const RopeTable& table) {
  const int head_dim = rows[0].cache->shape.head_dim;
  record("rope_store_kv", RopeStoreKvArgs{rope_args(q, n_heads, head_dim, rows, table), kv_args(k, v, rows, layer)},
         {static_cast<int>(rows.size()), n_heads, head_dim, layer});
}

StoreKvArgs CudaBackend::kv_args(float* k, const float* v, std::span<const TokenRow> rows, int layer) {
  const KvShape& shape = rows[0].cache->shape;
  return {k,    v, stage_rows(rows), step_.flags(0), static_cast<int>(rows.size()), shape.n_kv_heads, shape.head_dim,
          layer};
}

// Zeros when it grows. What ops of this step were recorded with stays until it has ended.
void* CudaBackend::scratch(DeviceMemory& memory, std::size_t bytes, const char* what) {
  if (memory.size() >= bytes || !step_.status().ok()) return memory.as<void>();
  const auto grow = [&]() -> Status {
    NIBBLE_ASSIGN(DeviceMemory larger, DeviceMemory::allocate(bytes, what));
    NIBBLE_TRY(check(cudaMemsetAsync(larger.as<void>(), 0, bytes, stream_.get()), "cudaMemsetAsync", what));
    outgrown_.push_back(std::exchange(memory, std::move(larger)));
    return ok_status();
  };
  if (auto grown = grow(); !grown.ok()) step_.fail(std::move(grown).error());
  return memory.as<void>();
}

bool CudaBackend::are_different_caches(std::span<const TokenRow> rows) {
  if (rows.size() > 1 && rows[0].cache == rows[1].cache) return false;  // most prompts
  caches_.clear();
  for (const TokenRow& row : rows) caches_.push_back(row.cache);
  std::ranges::sort(caches_);
  return std::ranges::adjacent_find(caches_) == caches_.end();
}

void CudaBackend::attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                            float* out) {
  record_attention(q, rows, layer, shape, out, nullptr);
}

void CudaBackend::attention_input(const float* q, std::span<const TokenRow> rows, int layer,
                                  const AttentionShape& shape, float* out, LinearInput& input) {
  const bool whole_blocks = shape.head_dim % kBlockColumns == 0;
  record_attention(q, rows, layer, shape, out, whole_blocks ? static_cast<CudaLinearInput*>(&input) : nullptr);
  if (whole_blocks) {
    prepare_other_formats(static_cast<const CudaLinearInput&>(input));
  } else {
    prepare_input(out, static_cast<int>(rows.size()), input);
  }
}

// Everything but how the work is divided. Fills `input`, if it is not null, with the quantized output.
AttentionArgs CudaBackend::attention_args(const float* q, std::span<const TokenRow> rows, int layer,
                                          const AttentionShape& shape, float* out, CudaLinearInput* input) {
  AttentionArgs args;
  args.q = q;
  args.out = out;
  args.rows = stage_rows(rows);
  args.flags = step_.flags(0);
  args.n_rows = static_cast<int>(rows.size());
  if (input != nullptr) {
    input->n_rows = args.n_rows;
    input->x = out;
    args.quantized = input->quantized;
    args.input_flags = step_.flags(input->first_flag);
  }
  args.n_heads = shape.n_heads;
  args.n_kv_heads = shape.n_kv_heads;
  args.head_dim = shape.head_dim;
  args.layer = layer;
  args.window = shape.window > 0 ? shape.window : std::numeric_limits<int>::max();
  // Section 7, step 3.
  args.score_scale = (shape.scale * format::kLog2E) / static_cast<float>(shape.head_dim & -shape.head_dim);
  args.score_limit = 0x1p20F / args.score_scale;
  return args;
}

namespace {

// Rounded up to a power of two, so that a step can be replayed while the sequence grows.
int splits_of(std::span<const TokenRow> rows) {
  const int last = std::ranges::max(rows, {}, &TokenRow::pos).pos;
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(last / kSplit + 1)));
}

// That so many keys can touch, wherever they begin.
int splits_of_window(int window) {
  return static_cast<int>((std::int64_t{window} + kSplit - 2) / kSplit + 1);
}

std::size_t partial_bytes(const AttentionArgs& a, int n_splits) {
  return static_cast<std::size_t>(a.n_rows) * a.n_heads * n_splits * partial_ints(a.head_dim) * sizeof(std::int32_t);
}

}  // namespace

bool CudaBackend::takes_prompt_tiles(std::span<const TokenRow> rows, const AttentionShape& shape) const {
  const int bytes = prompt_shared_bytes(shape.head_dim);
  return bytes > 0 && bytes <= device_.shared_bytes && shape.n_heads / shape.n_kv_heads <= kPromptTileQueries &&
         std::ranges::is_sorted(rows, {}, &TokenRow::pos);
}

void CudaBackend::record_attention(const float* q, std::span<const TokenRow> rows, int layer,
                                   const AttentionShape& shape, float* out, CudaLinearInput* input) {
  AttentionArgs args = attention_args(q, rows, layer, shape, out, input);
  const int group = shape.n_heads / shape.n_kv_heads;
  const bool one_cache = std::ranges::all_of(rows, [&](const TokenRow& row) { return row.cache == rows[0].cache; });
  args.rows_per_tile = one_cache ? std::max(1, kTileQueries / group) : 1;

  // Few tiles of long sequences leave most of the GPU idle: then each split is a thread block.
  const int n_splits = splits_of(rows);
  const std::int64_t parts = (group + kTileQueries - 1) / kTileQueries;
  const std::int64_t tiles =
      std::int64_t{(args.n_rows + args.rows_per_tile - 1) / args.rows_per_tile} * shape.n_kv_heads * parts;
  const std::size_t bytes = partial_bytes(args, n_splits);
  if (n_splits > 1 && tiles < 2 * device_.n_multiprocessors && bytes <= kMaxPartialBytes) {
    args.n_splits = n_splits;
    args.partial = static_cast<std::int32_t*>(scratch(partial_, bytes, "sums of attention"));
  } else if (one_cache && takes_prompt_tiles(rows, shape)) {
    args.rows_per_tile = kPromptTileQueries / group;
    record("attention_prompt", PromptArgs{args}, {args.n_rows, shape.n_heads, shape.head_dim, n_splits * kSplit});
    return;
  }
  record("attention", args, {args.n_rows, shape.n_heads, shape.head_dim, n_splits * kSplit});
}

void CudaBackend::rope_attention_input(float* q, float* k, const float* v, std::span<const TokenRow> rows, int layer,
                                       const RopeTable& table, const AttentionShape& shape, float* out,
                                       LinearInput& input) {
  const auto decode = [&](DecodeArgs args) {
    args.attention.n_splits = std::min(splits_of(rows), splits_of_window(args.attention.window));
    const std::size_t bytes = partial_bytes(args.attention, args.attention.n_splits);
    if (bytes > kMaxPartialBytes || !plan(args, {device_.n_multiprocessors, device_.shared_bytes})) {
      return false;
    }
    args.attention.partial = static_cast<std::int32_t*>(scratch(partial_, bytes, "sums of attention"));
    args.arrived = static_cast<int*>(scratch(arrived_, n_counters(args) * sizeof(int), "counters of attention"));
    record("attention_decode", args,
           {args.attention.n_rows, shape.n_heads, shape.head_dim, args.attention.n_splits * kSplit});
    return true;
  };
  const auto& rope = static_cast<const CudaRopeTable&>(table);
  const bool whole_blocks = shape.head_dim % kBlockColumns == 0;
  auto* to = static_cast<CudaLinearInput*>(&input);
  if (are_different_caches(rows) &&
      decode({.attention = attention_args(q, rows, layer, shape, out, whole_blocks ? to : nullptr),
              .kv = kv_args(k, v, rows, layer),
              .cos_sin = rope.cos_sin.as<float>(),
              .rotary_dim = rope.rotary_dim,
              .interleaved = rope.interleaved})) {
    if (whole_blocks) {
      prepare_other_formats(*to);
    } else {
      prepare_input(out, static_cast<int>(rows.size()), input);
    }
    return;
  }
  Backend::rope_attention_input(q, k, v, rows, layer, table, shape, out, input);
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
  NIBBLE_TRY(stream_.try_wait());
  std::memcpy(destination.data(), answers_.data(), destination.size_bytes());
  return ok_status();
}

// The route of a name; none for the integer kernels.
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
  NIBBLE_TRY(cuda::check_tensor_cores(*device, cuda::Stream()));
  auto backend = std::make_unique<cuda::CudaBackend>(*device, options.cuda_graphs, route);
  NIBBLE_TRY(cuda::check_digest(*device, *backend));
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace nibble::kernels
