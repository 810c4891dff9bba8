#include "kernels/reference/reference_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/thread_pool.h"
#include "format/half.h"
#include "format/portable.h"
#include "kernels/host_memory.h"
#include "kernels/reference/elementwise.h"
#include "kernels/reference/pack_weights.h"
#include "kernels/reference/panel_gemm.h"
#include "kernels/reference/split_attention.h"
#include "kernels/weight_errors.h"
#include "oracle/activations.h"
#include "oracle/attention.h"
#include "oracle/hadamard.h"
#include "oracle/linear.h"
#include "oracle/reduce.h"
#include "oracle/rms_norm.h"
#include "oracle/rope.h"

namespace nibble::kernels {
namespace {

using namespace reference;

constexpr int kBlock = 64;

int round_up(int n, int step) {
  return (n + step - 1) / step * step;
}

struct ReferenceLinear final : Linear {
  enum class Form { kFloats, kIntegers, kCanonical, kNvfp4 };
  Form form = Form::kFloats;
  PanelMatrix panels;  // empty for the two below
  TensorView rows;     // of kCanonical: F32
  Nvfp4View nvfp4;     // of kNvfp4: a16q8 and w4a4, as the oracle has them
};

// One matrix in the forms that linears of the chosen arithmetic may want, rows padded with zeros to blocks of 64.
struct ReferenceInput final : LinearInput {
  ReferenceInput(int max_rows, int width)
      : stride(round_up(width, kBlock)),
        x(static_cast<std::size_t>(max_rows) * stride),
        q(x.size()),
        quantized(x.size()),
        d(x.size() / kBlock),
        ones(x.size() / kBlock),
        a16q8(max_rows) {
    std::ranges::fill(ones.span(), 1.0F);
  }
  int stride;
  AlignedBuffer<float> x;            // [max_rows, stride]: as given
  AlignedBuffer<float> q;            // [max_rows, stride]: integers of a11
  AlignedBuffer<float> quantized;    // [max_rows, stride]: q * d
  AlignedBuffer<float> d;            // [max_rows, stride / 64]
  AlignedBuffer<float> ones;         // [max_rows, stride / 64]
  std::vector<oracle::A16Q8> a16q8;  // [max_rows]
};

struct ReferenceCache final : KvCache {
  std::size_t bytes() const override {
    std::size_t n = 0;
    for (const HeadCache& h : heads) n += 4 * (h.keys.size() + h.values.size() + 2 * h.key_scales.size());
    return n;
  }
  HeadCache& head(int layer, int kv_head) {
    return heads[static_cast<std::size_t>(layer) * shape.n_kv_heads + kv_head];
  }
  std::vector<HeadCache> heads;  // [n_layers, n_kv_heads]
};

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(const ReferenceOptions& options) : options_(options), pool_(options.n_threads) {}

  std::string_view name() const override { return "reference"; }
  std::string description() const override {
    return fmt::format("reference, {} activations, {} attention, {} threads",
                       a11() ? activation_format_name(activations_) : "float",
                       integer_attention() ? "integer" : "float", pool_.size());
  }

  bool has(Ability) const override { return true; }
  Status use_activations(ActivationFormat format) override;
  std::unique_ptr<Buffer> make_buffer(std::size_t n) override { return std::make_unique<HostBuffer>(n); }
  std::unique_ptr<Buffer> make_vector(std::span<const float> values) override { return make_host_vector(values); }
  Result<std::unique_ptr<Linear>> make_linear(const WeightSource& weights) override;
  Result<std::unique_ptr<Embedding>> make_embedding(const TensorView& table) override {
    return make_host_embedding(table);
  }
  std::unique_ptr<LinearInput> make_linear_input(int max_rows, int n_in) override;
  std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) override;
  std::unique_ptr<RopeTable> make_rope_table(std::span<const float> cos_sin, int rotary_dim,
                                             bool interleaved) override {
    return make_host_rope_table(cos_sin, rotary_dim, interleaved);
  }

  void begin_step(int n_flags) override { nonfinite_.assign(n_flags, 0); }
  std::span<const std::uint8_t> end_step() override { return nonfinite_; }

  void embed(const Embedding& table, std::span<const std::int32_t> tokens, float* out) override;
  void rms_norm(const float* x, const float* weight, int n_rows, int dim, float eps, float* out) override;
  void prepare_input(const float* x, int n_rows, LinearInput& input) override;
  void linear(const LinearInput& input, const Linear& weights, const float* bias, float* out) override;
  void rope(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows, const RopeTable& table) override;
  void store_kv(const float* k, const float* v, std::span<const TokenRow> rows, int layer) override;
  void attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                 float* out) override;
  void silu_mul(const float* gate, const float* up, std::size_t n, float* out) override;
  void gelu_mul(const float* gate, const float* up, std::size_t n, float* out) override;
  void scale(float* x, float factor, std::size_t n) override;
  void add(float* x, const float* y, std::size_t n) override;
  void add_rows(const float* x, const float* y, std::span<const std::int32_t> indices, int dim, float* out) override;
  void read(const float* source, std::span<float> destination) override {
    std::copy_n(source, destination.size(), destination.begin());
  }

 private:
  bool a11() const { return options_.activations == ReferenceActivations::kA11; }
  bool integer_attention() const { return options_.attention == ReferenceAttention::kInteger; }
  void mark_nonfinite(std::size_t row) {
    if (row < nonfinite_.size()) std::atomic_ref(nonfinite_[row]).store(1, std::memory_order_relaxed);
  }
  bool load_head(std::span<const float> x, int max, float* values, float& scale) const;
  void attend_group(const float* q, std::span<const TokenRow> rows, const AttentionShape& shape, int layer, int kv_head,
                    std::size_t first_row, std::size_t n_rows, float* out);
  void finish_head(HeadState& state, std::span<float> out) const;

  void multiply_nvfp4(const ReferenceInput& input, const ReferenceLinear& w, const float* bias, float* out);

  ReferenceOptions options_;
  ActivationFormat activations_ = ActivationFormat::kA11;
  ThreadPool pool_;
  std::vector<std::uint8_t> nonfinite_;
};

Status ReferenceBackend::use_activations(ActivationFormat format) {
  if (!a11() || is_native(format)) return Backend::use_activations(format);  // of no contract
  activations_ = format;
  return ok_status();
}

Result<std::unique_ptr<Linear>> ReferenceBackend::make_linear(const WeightSource& weights) {
  auto linear = std::make_unique<ReferenceLinear>();
  const TensorView* view = std::get_if<TensorView>(&weights);
  const bool f32 = view != nullptr && view->dtype == DType::kF32;
  if (a11() && f32 && !options_.quantize_inputs_of_f32_weights) {
    linear->form = ReferenceLinear::Form::kCanonical;
    linear->rows = *view;
  } else if (view == nullptr && activations_ != ActivationFormat::kA11) {
    linear->form = ReferenceLinear::Form::kNvfp4;
    linear->nvfp4 = std::get<Nvfp4View>(weights);
    if (activations_ == ActivationFormat::kW4A4 && !linear->nvfp4.input_scale_inv) return no_input_scale(linear->nvfp4);
  } else if (a11() && !f32) {
    linear->form = ReferenceLinear::Form::kIntegers;
    NIBBLE_ASSIGN(linear->panels, pack_integers(weights));
  } else {
    NIBBLE_ASSIGN(linear->panels, pack_floats(weights));
  }
  linear->n_out = static_cast<int>(view != nullptr ? view->rows() : std::get<Nvfp4View>(weights).rows);
  linear->n_in = static_cast<int>(view != nullptr ? view->cols() : std::get<Nvfp4View>(weights).cols);
  return std::unique_ptr<Linear>(std::move(linear));
}

std::unique_ptr<LinearInput> ReferenceBackend::make_linear_input(int max_rows, int n_in) {
  auto input = std::make_unique<ReferenceInput>(max_rows, n_in);
  input->n_in = n_in;
  return input;
}

std::unique_ptr<KvCache> ReferenceBackend::make_kv_cache(const KvShape& shape) {
  auto cache = std::make_unique<ReferenceCache>();
  cache->shape = shape;
  for (int i = 0; i < shape.n_layers * shape.n_kv_heads; ++i) cache->heads.emplace_back(shape.capacity, shape.head_dim);
  return cache;
}

void ReferenceBackend::embed(const Embedding& table, std::span<const std::int32_t> tokens, float* out) {
  const auto& embedding = static_cast<const HostEmbedding&>(table);
  for (std::size_t i = 0; i < tokens.size(); ++i) decode_row(embedding.table, tokens[i], out + i * embedding.d_model);
}

void ReferenceBackend::rms_norm(const float* x, const float* weight, int n_rows, int dim, float eps, float* out) {
  pool_.parallel_for(n_rows, 1, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t i = begin; i < end; ++i) {
      oracle::rms_norm({x + i * dim, std::size_t(dim)}, {weight, std::size_t(dim)}, eps,
                       {out + i * dim, std::size_t(dim)});
    }
  });
}

// False for NaN, and for what rounds to an infinity.
bool fits_f16(float x) {
  return !format::is_nonfinite(format::f16_to_f32(format::f32_to_f16(x)));
}

void ReferenceBackend::prepare_input(const float* x, int n_rows, LinearInput& base) {
  auto& input = static_cast<ReferenceInput&>(base);
  input.n_rows = n_rows;
  const int n = input.n_in;
  pool_.parallel_for(n_rows, 1, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t i = begin; i < end; ++i) {
      const float* from = x + i * n;
      const std::size_t at = i * input.stride;
      std::copy_n(from, n, &input.x[at]);
      if (!a11()) {
        if (std::any_of(from, from + n, format::is_nonfinite)) mark_nonfinite(input.first_flag + i);
        continue;
      }
      if (activations_ != ActivationFormat::kA11) {
        if (!std::all_of(from, from + n, fits_f16)) mark_nonfinite(input.first_flag + i);
        input.a16q8[i] = oracle::quantize_a16q8({from, static_cast<std::size_t>(n)});
      }
      if (!quantize_a11_row(from, n, &input.q[at], &input.d[at / kBlock])) mark_nonfinite(input.first_flag + i);
      for (int k = 0; k < n; ++k) input.quantized[at + k] = input.q[at + k] * input.d[(at + k) / kBlock];
    }
  });
}

void multiply_canonical(const ReferenceInput& input, const ReferenceLinear& w, const float* bias, float* out) {
  std::vector<float> row(w.n_in);
  for (int r = 0; r < w.n_out; ++r) {
    decode_row(w.rows, r, row.data());
    for (int t = 0; t < input.n_rows; ++t) {
      const float y = oracle::reduce_products(
          row, {&input.x[static_cast<std::size_t>(t) * input.stride], static_cast<std::size_t>(w.n_in)});
      out[static_cast<std::size_t>(t) * w.n_out + r] = bias != nullptr ? y + bias[r] : y;
    }
  }
}

void ReferenceBackend::multiply_nvfp4(const ReferenceInput& input, const ReferenceLinear& w, const float* bias,
                                      float* out) {
  const Nvfp4View& view = w.nvfp4;
  std::vector<oracle::W4A4> w4a4;
  for (int t = 0; activations_ == ActivationFormat::kW4A4 && t < input.n_rows; ++t) {
    const std::size_t at = static_cast<std::size_t>(t) * input.stride;
    w4a4.push_back(oracle::quantize_w4a4({&input.x[at], static_cast<std::size_t>(w.n_in)}, *view.input_scale_inv));
  }
  pool_.parallel_for(w.n_out, 1, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t r = begin; r < end; ++r) {
      const oracle::Nvfp4Row row{view.row_codes(r), view.row_scales(r), view.tensor_scale};
      for (int t = 0; t < input.n_rows; ++t) {
        const float y = w4a4.empty() ? oracle::dot_nvfp4_a16q8(row, input.a16q8[t])
                                     : oracle::dot_nvfp4_w4a4(row, w4a4[t], *view.input_scale_inv);
        out[static_cast<std::size_t>(t) * w.n_out + r] = bias != nullptr ? y + bias[r] : y;
      }
    }
  });
}

void ReferenceBackend::linear(const LinearInput& base, const Linear& weights, const float* bias, float* out) {
  const auto& input = static_cast<const ReferenceInput&>(base);
  const auto& w = static_cast<const ReferenceLinear&>(weights);
  NIBBLE_CHECK(input.n_in == w.n_in, "the input of a linear has another width than its weights");
  PanelInput panel{nullptr, input.ones.data(), input.n_rows, input.stride};
  switch (w.form) {
    case ReferenceLinear::Form::kCanonical:
      multiply_canonical(input, w, bias, out);
      return;
    case ReferenceLinear::Form::kNvfp4:
      multiply_nvfp4(input, w, bias, out);
      return;
    case ReferenceLinear::Form::kFloats:
      panel.x = a11() ? input.quantized.data() : input.x.data();
      break;
    case ReferenceLinear::Form::kIntegers:
      panel.x = input.q.data();
      panel.d = input.d.data();
      break;
  }
  multiply(panel, w.panels, bias, out, pool_);
}

void ReferenceBackend::rope(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows,
                            const RopeTable& base) {
  const auto& table = static_cast<const HostRopeTable&>(base);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (int h = 0; h < n_heads; ++h) {
      oracle::rope({x + (i * n_heads + h) * head_dim, std::size_t(head_dim)}, table.row(rows[i].pos),
                   table.interleaved);
    }
  }
}

// One head's vector as attention wants it: rotated integers and their scale, or the floats under a scale of 1.
bool ReferenceBackend::load_head(std::span<const float> x, int max, float* values, float& scale) const {
  if (!integer_attention()) {
    std::ranges::copy(x, values);
    scale = 1;
    return std::ranges::none_of(x, format::is_nonfinite);
  }
  const oracle::QuantizedHead head = oracle::quantize_head(x, max);
  std::ranges::copy(head.q, values);
  scale = head.scale;
  return head.finite;
}

void ReferenceBackend::store_kv(const float* k, const float* v, std::span<const TokenRow> rows, int layer) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto& cache = static_cast<ReferenceCache&>(*rows[i].cache);
    const std::size_t dim = cache.shape.head_dim;
    NIBBLE_CHECK(rows[i].pos >= 0 && rows[i].pos < cache.shape.capacity, "a position beyond the cache");
    std::vector<float> key(dim);
    std::vector<float> value(dim);
    for (int h = 0; h < cache.shape.n_kv_heads; ++h) {
      const std::size_t at = (i * cache.shape.n_kv_heads + h) * dim;
      float key_scale = 0;
      float value_scale = 0;
      const bool key_finite = load_head({k + at, dim}, oracle::kKeyMax, key.data(), key_scale);
      const bool value_finite = load_head({v + at, dim}, oracle::kValueMax, value.data(), value_scale);
      if (!key_finite || !value_finite) mark_nonfinite(i);
      cache.head(layer, h).store(rows[i].pos, key.data(), key_scale, value.data(), value_scale);
    }
  }
}

void ReferenceBackend::attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                                 float* out) {
  constexpr std::size_t kRows = 16;  // rows that share a split of keys while it is in the first-level cache
  const std::size_t n_groups = (rows.size() + kRows - 1) / kRows;
  pool_.parallel_for(n_groups * shape.n_kv_heads, 1, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t item = begin; item < end; ++item) {
      const std::size_t first = item / shape.n_kv_heads * kRows;
      attend_group(q, rows, shape, layer, static_cast<int>(item % shape.n_kv_heads), first,
                   std::min(kRows, rows.size() - first), out);
    }
  });
}

void ReferenceBackend::attend_group(const float* q, std::span<const TokenRow> rows, const AttentionShape& shape,
                                    int layer, int kv_head, std::size_t first_row, std::size_t n_rows, float* out) {
  const int group = shape.n_heads / shape.n_kv_heads;
  const std::size_t dim = shape.head_dim;
  const oracle::ScoreScale scale = oracle::make_score_scale(shape.scale, shape.head_dim);
  for (std::size_t i = 0; i < n_rows;) {
    std::size_t last = i;  // rows of one sequence go together
    while (last < n_rows && rows[first_row + last].cache == rows[first_row + i].cache) ++last;
    const HeadCache& cache = static_cast<ReferenceCache&>(*rows[first_row + i].cache).head(layer, kv_head);
    std::vector<HeadState> states(static_cast<std::size_t>(group) * (last - i), HeadState(shape.head_dim));
    int first_key = std::numeric_limits<int>::max(), n_keys = 0;
    for (std::size_t s = 0; s < states.size(); ++s) {
      const std::size_t row = first_row + i + s / group;
      const std::size_t at = (row * shape.n_heads + static_cast<std::size_t>(kv_head) * group + s % group) * dim;
      if (!load_head({q + at, dim}, oracle::kQueryMax, states[s].q.data(), states[s].q_scale)) mark_nonfinite(row);
      states[s].n_keys = rows[row].pos + 1;
      states[s].first_key = shape.window > 0 ? std::max(0, states[s].n_keys - shape.window) : 0;
      first_key = std::min(first_key, states[s].first_key);
      n_keys = std::max(n_keys, states[s].n_keys);
    }
    for (int split = first_key / kSplit; split * kSplit < n_keys; ++split) {
      for (HeadState& state : states) {
        if (split * kSplit >= state.n_keys || (split + 1) * kSplit <= state.first_key) continue;
        if (integer_attention()) {
          attend_integer(cache, split, scale.c, scale.limit, state);
        } else {
          attend_float(cache, split, shape.scale, state);
        }
      }
    }
    for (std::size_t s = 0; s < states.size(); ++s) {
      const std::size_t row = first_row + i + s / group;
      const std::size_t at = (row * shape.n_heads + static_cast<std::size_t>(kv_head) * group + s % group) * dim;
      finish_head(states[s], {out + at, dim});
    }
    i = last;
  }
}

void ReferenceBackend::finish_head(HeadState& state, std::span<float> out) const {
  if (!integer_attention()) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(state.sums[i] / state.sum);
    return;
  }
  const auto size = static_cast<float>(oracle::hadamard_size(static_cast<int>(out.size())));
  const float normalize = (1.0F / size) / state.l;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = state.o[i] * normalize;
  oracle::hadamard(out);
}

void ReferenceBackend::silu_mul(const float* gate, const float* up, std::size_t n, float* out) {
  pool_.parallel_for(n, 1024, [&](std::size_t begin, std::size_t end, int) {
    reference::silu_mul(gate + begin, up + begin, end - begin, out + begin);
  });
}

void ReferenceBackend::gelu_mul(const float* gate, const float* up, std::size_t n, float* out) {
  pool_.parallel_for(n, 1024, [&](std::size_t begin, std::size_t end, int) {
    reference::gelu_mul(gate + begin, up + begin, end - begin, out + begin);
  });
}

void ReferenceBackend::scale(float* x, float factor, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] = x[i] * factor;
}

void ReferenceBackend::add(float* x, const float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] = x[i] + y[i];
}

void ReferenceBackend::add_rows(const float* x, const float* y, std::span<const std::int32_t> indices, int dim,
                                float* out) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::size_t at = static_cast<std::size_t>(indices[i]) * dim;
    for (int j = 0; j < dim; ++j) out[i * dim + j] = x[at + j] + y[at + j];
  }
}

}  // namespace

std::unique_ptr<Backend> make_reference_backend(const ReferenceOptions& options) {
  return std::make_unique<ReferenceBackend>(options);
}

}  // namespace nibble::kernels
