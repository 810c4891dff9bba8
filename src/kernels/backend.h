// The seam between the model and the machine. A Backend owns memory and runs the ops of docs/contract.md on it; nothing
// above this header knows an instruction set or a GPU. All matrices are row-major f32 in the backend's memory, one row
// per token. Ops of one backend are issued from one thread at a time and take effect in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "kernels/memory_need.h"
#include "tensor/fp8_view.h"
#include "tensor/nvfp4_view.h"
#include "tensor/tensor_view.h"

namespace nibble::kernels {

// f32 memory of a backend. data() may be dereferenced by that backend only.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual float* data() = 0;
  const float* data() const { return const_cast<Buffer*>(this)->data(); }
  virtual std::size_t size() const = 0;  // in floats
};

// Weights of one linear layer [n_out, n_in] in the layout the backend likes. Refers to the source bytes where it can,
// so the mapped file must outlive it.
struct Linear {
  virtual ~Linear() = default;
  int n_out = 0;
  int n_in = 0;
  bool reads_source = true;  // false: ops read a copy, so the source's pages may be given back
};

// A matrix [n_rows <= max_rows, n_in] made ready once for all the linears that read it: the integers of the format of
// activations, and those of a11 where other weights than NVFP4 want them.
struct LinearInput {
  virtual ~LinearInput() = default;
  int n_rows = 0;
  int n_in = 0;
  int first_flag = 0;  // row i raises flag first_flag + i of the step when it meets a non-finite value
};

// One of several linears of the same input.
struct LinearCall {
  const Linear* weights = nullptr;
  const float* bias = nullptr;  // [n_out] or null
  float* out = nullptr;         // [n_rows, n_out]
};

// Rows of the embedding table [vocab_size, d_model].
struct Embedding {
  virtual ~Embedding() = default;
  int vocab_size = 0;
  int d_model = 0;
};

struct KvShape {
  int n_layers = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int capacity = 0;  // positions
  // Layers with a sliding window, of which a cache may give up what no step can see any more: positions that a row of
  // each layer sees, 0 for all of them. Empty: every layer keeps everything.
  std::vector<int> windows = {};  // [n_layers]
  int step_rows = 0;              // the most positions of a sequence that one step adds, where there are windows
};

// Keys and values of one sequence, [n_layers, n_kv_heads, capacity, head_dim], written in order of positions.
struct KvCache {
  virtual ~KvCache() = default;
  virtual std::size_t bytes() const = 0;
  // Goes back to a sequence of its first n positions, which another may follow. Returns n, or 0 where the cache has
  // given up what position n would see: then every position has to be written again.
  virtual int rewind(int n) { return n; }
  KvShape shape;
};

// cos and sin on the backend: [n_positions, rotary_dim / 2, 2].
struct RopeTable {
  virtual ~RopeTable() = default;
  int n_positions = 0;
  int rotary_dim = 0;        // leading dimensions of a head that are rotated; even
  bool interleaved = false;  // pairs (2i, 2i+1), otherwise (i, i + rotary_dim / 2)
};

// What a row of a batch is: which sequence and which absolute position.
struct TokenRow {
  KvCache* cache = nullptr;
  std::int32_t pos = 0;
};

struct AttentionShape {
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  float scale = 0;  // softmax scale, usually 1 / sqrt(head_dim)
  int window = 0;   // a row sees that many positions, its own the last; 0: all up to its own
};

// What only some families need and not every backend has; asked for before anything is loaded.
enum class Ability {
  kScale,     // scale
  kGeluGate,  // gelu_mul, gelu_mul_input
  kWindow,    // AttentionShape::window
};
std::string_view ability_name(Ability ability);  // for people: "embeddings that are scaled"

// The activations that NVFP4 weights meet, in which contracts differ (docs/contract.md, sections 3, 10 and 11). Weights
// of other types meet a11 in all of them. kNative: f16, and sums that a GPU may round in any order; kNativeFp4: the
// same with NVFP4 (section 13).
enum class ActivationFormat { kA11, kA16Q8, kW4A4, kNative, kNativeFp4 };
constexpr bool is_native(ActivationFormat format) {
  return format == ActivationFormat::kNative || format == ActivationFormat::kNativeFp4;
}
std::string_view activation_format_name(ActivationFormat format);  // "a11", "a16q8", "w4a4", "f16 with free sums"

// Weights as the file has them. A TensorView is F32, F16, BF16 or a block-quantized type of tensor/quant_block.h.
using WeightSource = std::variant<TensorView, Nvfp4View, Fp8View>;

struct SourceShape {
  std::string_view name;
  std::uint64_t rows, cols;
};
SourceShape shape_of(const WeightSource& source);

// Weights that a file has, before any of them is read.
struct WeightShape {
  DType dtype = DType::kF32;
  std::uint64_t rows = 0, cols = 0;
  std::uint64_t bytes = 0;  // in the file
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;    // "cpu", "reference"
  virtual std::string description() const = 0;  // for people: "cpu avx512, 2 threads"

  virtual bool has(Ability) const { return false; }
  // Weights of this type: in linear layers and, NVFP4 excepted, as an embedding table.
  virtual bool takes(DType) const { return true; }

  // --- memory and weights, at load ---
  // Of the memory that admit is about: what weights take in the layout of this backend, for the activations in use.
  virtual std::uint64_t weight_bytes(const WeightShape& weights) const { return weights.bytes; }
  // Refuses what will not fit, before any of it is made. The memory of the host is its system's business.
  virtual Status admit(const MemoryNeed&) { return ok_status(); }
  // What NVFP4 weights that are made from now on will meet, and inputs are made for. Refuses what it has no kernels
  // for.
  virtual Status use_activations(ActivationFormat format);
  virtual std::unique_ptr<Buffer> make_buffer(std::size_t n_floats) = 0;           // zeros
  virtual std::unique_ptr<Buffer> make_vector(std::span<const float> values) = 0;  // norms, biases
  virtual Result<std::unique_ptr<Linear>> make_linear(const WeightSource& weights) = 0;
  virtual Result<std::unique_ptr<Embedding>> make_embedding(const WeightSource& table) = 0;
  virtual std::unique_ptr<LinearInput> make_linear_input(int max_rows, int n_in) = 0;
  virtual std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) = 0;
  virtual std::uint64_t kv_cache_bytes(const KvShape& shape) const;  // what make_kv_cache would take
  virtual std::unique_ptr<RopeTable> make_rope_table(std::span<const float> cos_sin, int rotary_dim,
                                                     bool interleaved) = 0;
  // Whether everything could be made that was asked for since the last call, of what is given without a Result. Where
  // it could not, what was given must not be used.
  virtual Status made() { return ok_status(); }

  // --- one step: a forward pass; a backend may record the ops between begin_step and end_step and run them as one ---
  virtual void begin_step(int n_flags) = 0;
  // Waits for the step, which may fail: see fault(). Element i is non-zero if what flag i stands for met a non-finite
  // value (contract, rule 4); rows of embed, rope, store_kv and attention raise the flag of their index. Valid until
  // the next begin_step.
  virtual std::span<const std::uint8_t> end_step() = 0;
  // Why this backend cannot be used any more: its machine failed in a step or a read. What was computed since
  // begin_step is then worthless; later steps do nothing, and admit refuses.
  virtual Status fault() const { return ok_status(); }

  virtual void embed(const Embedding& table, std::span<const std::int32_t> tokens,
                     float* out /* [n_rows, d_model] */) = 0;
  virtual void rms_norm(const float* x, const float* weight, int n_rows, int dim, float eps,
                        float* out /* may be x */) = 0;
  virtual void prepare_input(const float* x /* [n_rows, n_in] */, int n_rows, LinearInput& input) = 0;
  virtual void linear(const LinearInput& input, const Linear& weights, const float* bias /* [n_out] or null */,
                      float* out /* [n_rows, n_out] */) = 0;
  virtual void rope(float* x /* [n_rows, n_heads, head_dim], in place */, int n_heads, int head_dim,
                    std::span<const TokenRow> rows, const RopeTable& table) = 0;
  virtual void store_kv(const float* k, const float* v /* [n_rows, n_kv_heads, head_dim] */,
                        std::span<const TokenRow> rows, int layer) = 0;
  // Causal: a row at position p sees positions 0..p of its cache, all of which have been stored, or the last
  // `shape.window` of these.
  virtual void attention(const float* q /* [n_rows, n_heads, head_dim] */, std::span<const TokenRow> rows, int layer,
                         const AttentionShape& shape, float* out /* [n_rows, n_heads * head_dim] */) = 0;
  virtual void silu_mul(const float* gate, const float* up, std::size_t n, float* out) = 0;
  virtual void gelu_mul(const float* gate, const float* up, std::size_t n, float* out);  // Ability::kGeluGate
  virtual void scale(float* x, float factor, std::size_t n);                             // Ability::kScale: x *= factor
  virtual void add(float* x, const float* y, std::size_t n) = 0;                         // x += y
  // out[i] = x[indices[i]] + y[indices[i]]
  virtual void add_rows(const float* x, const float* y /* [any, dim] */, std::span<const std::int32_t> indices, int dim,
                        float* out /* [indices.size(), dim] */) = 0;
  virtual void read(const float* source, std::span<float> destination) = 0;  // to host memory, outside of a step

  // --- fused forms: the ops that each names, in that order and with the same bits. Defined here by these ops; a
  // backend overrides what it can do at once ---

  // add (if y is not null), rms_norm into normed, prepare_input.
  virtual void add_norm_input(float* x, const float* y, const float* weight, int n_rows, int dim, float eps,
                              float* normed /* [n_rows, dim] */, LinearInput& input);
  // linear for each call.
  virtual void linears(const LinearInput& input, std::span<const LinearCall> calls);
  // rope of q and of k, store_kv.
  virtual void rope_store_kv(float* q, int n_heads, float* k, const float* v, std::span<const TokenRow> rows, int layer,
                             const RopeTable& table);
  // attention, prepare_input.
  virtual void attention_input(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                               float* out, LinearInput& input);
  // rope_store_kv, attention_input; q and k are scratch afterwards, whether rotated or not.
  virtual void rope_attention_input(float* q, float* k, const float* v, std::span<const TokenRow> rows, int layer,
                                    const RopeTable& table, const AttentionShape& shape, float* out,
                                    LinearInput& input);
  // silu_mul into out, prepare_input.
  virtual void silu_mul_input(const float* gate, const float* up /* [n_rows, dim] */, int n_rows, int dim, float* out,
                              LinearInput& input);
  // gelu_mul into out, prepare_input.
  virtual void gelu_mul_input(const float* gate, const float* up /* [n_rows, dim] */, int n_rows, int dim, float* out,
                              LinearInput& input);
};

}  // namespace nibble::kernels
