#include "tests/kernels/oracle_backend.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "format/e4m3.h"
#include "format/half.h"
#include "format/nc1.h"
#include "format/portable.h"
#include "kernels/host_memory.h"
#include "oracle/activation.h"
#include "oracle/activations.h"
#include "oracle/attention.h"
#include "oracle/linear.h"
#include "oracle/quant_linear.h"
#include "oracle/rms_norm.h"
#include "oracle/rope.h"

namespace nibble::kernels {
namespace {

// The rows of FP8 weights, with the scale of each block.
oracle::Fp8Row fp8_row(const Fp8View& view, std::uint64_t row) {
  oracle::Fp8Row out{view.row_codes(row), {}};
  for (std::uint64_t first = 0; first < view.cols; first += oracle::kA11Block) {
    out.scales.push_back(view.scale(row, first));
  }
  return out;
}

std::vector<float> row_as_f32(const TensorView& table, std::uint64_t row) {
  std::vector<float> out(table.cols());
  const std::byte* bytes = table.row_span(row).data();
  if (const QuantFormat* format = find_quant_format(table.dtype); format != nullptr && table.dtype != DType::kQ8_0) {
    quant_row_to_f32(*format, table.row_span(row), out.data());
    return out;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t half = 0;
    switch (table.dtype) {
      case DType::kF32:
        std::memcpy(&out[i], bytes + 4 * i, 4);
        break;
      case DType::kF16:
      case DType::kBF16:
        std::memcpy(&half, bytes + 2 * i, 2);
        out[i] = table.dtype == DType::kF16 ? format::f16_to_f32(half) : format::bf16_to_f32(half);
        break;
      case DType::kQ8_0:
        std::memcpy(&half, bytes + 34 * (i / 32), 2);
        out[i] =
            format::f16_to_f32(half) * static_cast<float>(static_cast<std::int8_t>(bytes[34 * (i / 32) + 2 + i % 32]));
        break;
      default:
        NIBBLE_CHECK(false, "the dtype was checked when the tensor was taken");
    }
  }
  return out;
}

bool is_row_type(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || find_quant_format(dtype) != nullptr;
}

Error refused(std::string_view tensor, std::string message, std::string found, std::string expected) {
  return Error{.message = std::move(message),
               .tensor = std::string(tensor),
               .found = std::move(found),
               .expected = std::move(expected)};
}

struct OracleLinear final : Linear {
  WeightSource source = TensorView{};
};
struct OracleInput final : LinearInput {
  std::vector<std::vector<float>> x;
  std::vector<oracle::A11> quantized;
  std::vector<oracle::A16Q8> a16q8;
};
struct OracleCache final : KvCache {
  struct Entry {
    oracle::QuantizedHead key, value;
  };
  std::map<std::pair<int, int>, std::vector<Entry>> heads;  // (layer, head) -> [capacity]
  std::size_t bytes() const override {
    return std::size_t{3} * shape.n_layers * shape.n_kv_heads * shape.capacity * shape.head_dim;
  }
};
class OracleBackend final : public Backend {
 public:
  std::string_view name() const override { return "oracle"; }
  std::string description() const override { return "oracle"; }

  bool has(Ability) const override { return true; }
  Status use_activations(ActivationFormat format) override {
    activations_ = format;
    return ok_status();
  }
  std::unique_ptr<Buffer> make_buffer(std::size_t n) override { return std::make_unique<HostBuffer>(n); }
  std::unique_ptr<Buffer> make_vector(std::span<const float> values) override { return make_host_vector(values); }
  Result<std::unique_ptr<Linear>> make_linear(const WeightSource& weights) override;
  Result<std::unique_ptr<Embedding>> make_embedding(const WeightSource& table) override {
    return make_host_embedding(table);
  }
  std::unique_ptr<LinearInput> make_linear_input(int, int n_in) override {
    auto input = std::make_unique<OracleInput>();
    input->n_in = n_in;
    return input;
  }
  std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) override {
    auto cache = std::make_unique<OracleCache>();
    cache->shape = shape;
    return cache;
  }
  std::unique_ptr<RopeTable> make_rope_table(std::span<const float> cos_sin, int rotary_dim,
                                             bool interleaved) override {
    return make_host_rope_table(cos_sin, rotary_dim, interleaved);
  }

  void begin_step(int n_flags) override { flags_.assign(n_flags, 0); }
  std::span<const std::uint8_t> end_step() override { return flags_; }

  void embed(const Embedding& table, std::span<const std::int32_t> tokens, float* out) override;
  void rms_norm(const float* x, const float* weight, int n_rows, int dim, float eps, float* out) override;
  void prepare_input(const float* x, int n_rows, LinearInput& input) override;
  void linear(const LinearInput& input, const Linear& weights, const float* bias, float* out) override;
  void rope(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows, const RopeTable& table) override;
  void store_kv(const float* k, const float* v, std::span<const TokenRow> rows, int layer) override;
  void attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                 float* out) override;
  void silu_mul(const float* gate, const float* up, std::size_t n, float* out) override {
    oracle::silu_mul({gate, n}, {up, n}, {out, n});
  }
  void gelu_mul(const float* gate, const float* up, std::size_t n, float* out) override {
    oracle::gelu_tanh_mul({gate, n}, {up, n}, {out, n});
  }
  void scale(float* x, float factor, std::size_t n) override {
    for (std::size_t i = 0; i < n; ++i) x[i] = x[i] * factor;
  }
  void add(float* x, const float* y, std::size_t n) override {
    for (std::size_t i = 0; i < n; ++i) x[i] = x[i] + y[i];
  }
  void add_rows(const float* x, const float* y, std::span<const std::int32_t> indices, int dim, float* out) override {
    for (const std::int32_t index : indices) {
      for (int i = 0; i < dim; ++i) *out++ = x[index * dim + i] + y[index * dim + i];
    }
  }
  void read(const float* source, std::span<float> destination) override {
    std::copy_n(source, destination.size(), destination.data());
  }

 private:
  void flag_row(std::size_t row, bool is_nonfinite) {
    if (is_nonfinite && row < flags_.size()) flags_[row] = 1;
  }
  float dot(const oracle::Nvfp4Row& row, const Nvfp4View& view, const OracleInput& in, int t) const {
    if (activations_ == ActivationFormat::kA11) return oracle::dot_nvfp4_a11(row, in.quantized[t]);
    if (activations_ == ActivationFormat::kA16Q8) return oracle::dot_nvfp4_a16q8(row, in.a16q8[t]);
    const float inverse = *view.input_scale_inv;
    return oracle::dot_nvfp4_w4a4(row, oracle::quantize_w4a4(in.x[t], inverse), inverse);
  }

  ActivationFormat activations_ = ActivationFormat::kA11;
  std::vector<std::uint8_t> flags_;
};

Result<std::unique_ptr<Linear>> OracleBackend::make_linear(const WeightSource& weights) {
  auto linear = std::make_unique<OracleLinear>();
  linear->source = weights;
  if (const auto* nvfp4 = std::get_if<Nvfp4View>(&weights)) {
    const bool is_a11 = activations_ == ActivationFormat::kA11;
    if (is_a11 &&
        !(nvfp4->tensor_scale >= format::nc1::kTensorScaleMin && nvfp4->tensor_scale <= format::nc1::kTensorScaleMax)) {
      return refused(nvfp4->name, "a tensor scale is outside of what contract nc1 computes",
                     std::to_string(nvfp4->tensor_scale), "2^-42 to 2^42");
    }
    linear->n_out = static_cast<int>(nvfp4->rows);
    linear->n_in = static_cast<int>(nvfp4->cols);
  } else if (const auto* fp8 = std::get_if<Fp8View>(&weights)) {
    linear->n_out = static_cast<int>(fp8->rows);
    linear->n_in = static_cast<int>(fp8->cols);
  } else {
    const auto& view = std::get<TensorView>(weights);
    if (!is_row_type(view.dtype)) {
      return refused(view.name, "weights of a type that nc1 does not take", std::string(dtype_name(view.dtype)),
                     "NVFP4, F16, BF16, F32, or one of Q4_0 to Q6_K");
    }
    for (std::uint64_t row = 0; row < view.rows(); ++row) {
      if (std::ranges::any_of(row_as_f32(view, row), format::is_nonfinite)) {
        return refused(view.name, "weights are not finite", "a NaN or an infinity", "finite values");
      }
    }
    linear->n_out = static_cast<int>(view.rows());
    linear->n_in = static_cast<int>(view.cols());
  }
  return std::unique_ptr<Linear>(std::move(linear));
}

void OracleBackend::embed(const Embedding& table, std::span<const std::int32_t> tokens, float* out) {
  const WeightSource& rows = static_cast<const HostEmbedding&>(table).rows;
  for (const std::int32_t token : tokens) {
    if (const auto* fp8 = std::get_if<Fp8View>(&rows)) {
      for (std::uint64_t i = 0; i < fp8->cols; ++i) {
        *out++ = format::e4m3_decode(fp8->row_codes(token)[i]) * fp8->scale(token, i);
      }
      continue;
    }
    const std::vector<float> row = row_as_f32(std::get<TensorView>(rows), token);
    out = std::ranges::copy(row, out).out;
  }
}

void OracleBackend::rms_norm(const float* x, const float* weight, int n_rows, int dim, float eps, float* out) {
  const auto n = static_cast<std::size_t>(dim);
  for (int i = 0; i < n_rows; ++i) oracle::rms_norm({x + i * n, n}, {weight, n}, eps, {out + i * n, n});
}

void OracleBackend::prepare_input(const float* x, int n_rows, LinearInput& input) {
  auto& in = static_cast<OracleInput&>(input);
  in.n_rows = n_rows;
  in.x.clear();
  in.quantized.clear();
  in.a16q8.clear();
  for (int i = 0; i < n_rows; ++i) {
    const float* row = x + static_cast<std::size_t>(i) * in.n_in;
    in.x.emplace_back(row, row + in.n_in);
    in.quantized.push_back(oracle::quantize_a11(in.x.back()));
    flag_row(in.first_flag + i, !in.quantized.back().finite);
    if (activations_ == ActivationFormat::kA11) continue;
    in.a16q8.push_back(oracle::quantize_a16q8(in.x.back()));
    for (const float value : in.x.back()) {
      flag_row(in.first_flag + i, format::is_nonfinite(format::f16_to_f32(format::f32_to_f16(value))));
    }
  }
}

void OracleBackend::linear(const LinearInput& input, const Linear& weights, const float* bias, float* out) {
  const auto& in = static_cast<const OracleInput&>(input);
  const WeightSource& source = static_cast<const OracleLinear&>(weights).source;
  const auto store = [&](int token, int row, float y) {
    out[static_cast<std::size_t>(token) * weights.n_out + row] = bias != nullptr ? y + bias[row] : y;
  };
  for (int row = 0; row < weights.n_out; ++row) {
    if (const auto* nvfp4 = std::get_if<Nvfp4View>(&source)) {
      const oracle::Nvfp4Row w{nvfp4->row_codes(row), nvfp4->row_scales(row), nvfp4->tensor_scale};
      for (int t = 0; t < in.n_rows; ++t) store(t, row, dot(w, *nvfp4, in, t));
      continue;
    }
    if (const auto* fp8 = std::get_if<Fp8View>(&source)) {
      const oracle::Fp8Row w = fp8_row(*fp8, row);
      for (int t = 0; t < in.n_rows; ++t) store(t, row, oracle::dot_fp8_a11(w, in.quantized[t]));
      continue;
    }
    const auto& view = std::get<TensorView>(source);
    if (view.dtype == DType::kQ8_0) {
      for (int t = 0; t < in.n_rows; ++t) store(t, row, oracle::dot_q8_0_a11(view.row_span(row), in.quantized[t]));
    } else if (const QuantFormat* format = find_quant_format(view.dtype)) {
      for (int t = 0; t < in.n_rows; ++t) {
        store(t, row, oracle::dot_quant_a11(*format, view.row_span(row), in.quantized[t]));
      }
    } else if (view.dtype == DType::kF32) {
      const std::vector<float> w = row_as_f32(view, row);
      for (int t = 0; t < in.n_rows; ++t) store(t, row, oracle::dot_f32(w, in.x[t]));
    } else {
      const oracle::IntegerRow w = oracle::make_integer_row(row_as_f32(view, row));
      for (int t = 0; t < in.n_rows; ++t) store(t, row, oracle::dot_16bit_a11(w, in.quantized[t]));
    }
  }
}

void OracleBackend::rope(float* x, int n_heads, int head_dim, std::span<const TokenRow> rows, const RopeTable& table) {
  const auto& host = static_cast<const HostRopeTable&>(table);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (int head = 0; head < n_heads; ++head) {
      float* h = x + (i * n_heads + head) * head_dim;
      oracle::rope({h, static_cast<std::size_t>(head_dim)}, host.row(rows[i].pos), table.interleaved);
    }
  }
}

void OracleBackend::store_kv(const float* k, const float* v, std::span<const TokenRow> rows, int layer) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto& cache = static_cast<OracleCache&>(*rows[i].cache);
    const auto head_dim = static_cast<std::size_t>(cache.shape.head_dim);
    for (int head = 0; head < cache.shape.n_kv_heads; ++head) {
      auto& entries = cache.heads[{layer, head}];
      entries.resize(cache.shape.capacity);
      const std::size_t at = (i * cache.shape.n_kv_heads + head) * head_dim;
      auto& entry = entries[rows[i].pos];
      entry.key = oracle::quantize_head({k + at, head_dim}, oracle::kKeyMax);
      entry.value = oracle::quantize_head({v + at, head_dim}, oracle::kValueMax);
      flag_row(i, !entry.key.finite || !entry.value.finite);
    }
  }
}

void OracleBackend::attention(const float* q, std::span<const TokenRow> rows, int layer, const AttentionShape& shape,
                              float* out) {
  const auto head_dim = static_cast<std::size_t>(shape.head_dim);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto& cache = static_cast<OracleCache&>(*rows[i].cache);
    for (int head = 0; head < shape.n_heads; ++head) {
      const auto& entries = cache.heads[{layer, head / (shape.n_heads / shape.n_kv_heads)}];
      std::vector<oracle::QuantizedHead> keys, values;
      for (int pos = 0; pos <= rows[i].pos; ++pos) {
        keys.push_back(entries[pos].key);
        values.push_back(entries[pos].value);
      }
      const std::size_t at = (i * shape.n_heads + head) * head_dim;
      const oracle::QuantizedHead query = oracle::quantize_head({q + at, head_dim}, oracle::kQueryMax);
      flag_row(i, !query.finite);
      const bool is_cut = shape.window > 0 && keys.size() > static_cast<std::size_t>(shape.window);
      const std::size_t first_key = is_cut ? keys.size() - shape.window : 0;
      oracle::attention(query, keys, values, shape.scale, {out + at, head_dim}, first_key);
    }
  }
}

}  // namespace

std::unique_ptr<Backend> make_oracle_backend() {
  return std::make_unique<OracleBackend>();
}

}  // namespace nibble::kernels
