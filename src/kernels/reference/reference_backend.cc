#include "kernels/reference/reference_backend.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "format/half.h"
#include "format/portable.h"
#include "kernels/reference/elementwise.h"
#include "kernels/reference/pack_weights.h"
#include "kernels/reference/reference_backend_class.h"
#include "kernels/weight_errors.h"
#include "oracle/linear.h"
#include "oracle/reduce.h"
#include "oracle/rms_norm.h"

namespace nibble::kernels {
namespace reference {

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
  } else if (std::holds_alternative<Nvfp4View>(weights) && activations_ != ActivationFormat::kA11) {
    linear->form = ReferenceLinear::Form::kNvfp4;
    linear->nvfp4 = std::get<Nvfp4View>(weights);
    if (activations_ == ActivationFormat::kW4A4 && !linear->nvfp4.input_scale_inv) return no_input_scale(linear->nvfp4);
  } else if (a11() && !f32) {
    linear->form = ReferenceLinear::Form::kIntegers;
    NIBBLE_ASSIGN(linear->panels, pack_integers(weights));
  } else {
    NIBBLE_ASSIGN(linear->panels, pack_floats(weights));
  }
  const SourceShape shape = shape_of(weights);
  linear->n_out = static_cast<int>(shape.rows);
  linear->n_in = static_cast<int>(shape.cols);
  return std::unique_ptr<Linear>(std::move(linear));
}

std::unique_ptr<LinearInput> ReferenceBackend::make_linear_input(int max_rows, int n_in) {
  auto input = std::make_unique<ReferenceInput>(max_rows, n_in);
  input->n_in = n_in;
  return input;
}

void ReferenceBackend::embed(const Embedding& table, std::span<const std::int32_t> tokens, float* out) {
  const auto& embedding = static_cast<const HostEmbedding&>(table);
  for (std::size_t i = 0; i < tokens.size(); ++i) decode_row(embedding.rows, tokens[i], out + i * embedding.d_model);
}

void ReferenceBackend::rms_norm(const float* x, const float* weight, int n_rows, int dim, float eps, float* out) {
  pool_.parallel_for(n_rows, 1, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t i = begin; i < end; ++i) {
      oracle::rms_norm({x + i * dim, std::size_t(dim)}, {weight, std::size_t(dim)}, eps,
                       {out + i * dim, std::size_t(dim)});
    }
  });
}

namespace {

// False for NaN, and for what rounds to an infinity.
bool fits_f16(float x) {
  return !format::is_nonfinite(format::f16_to_f32(format::f32_to_f16(x)));
}

}  // namespace

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

namespace {

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

}  // namespace

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

}  // namespace reference

std::unique_ptr<Backend> make_reference_backend(const ReferenceOptions& options) {
  return std::make_unique<reference::ReferenceBackend>(options);
}

}  // namespace nibble::kernels
