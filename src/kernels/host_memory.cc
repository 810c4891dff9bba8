#include "kernels/host_memory.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/check.h"
#include "tensor/quant_block.h"

namespace nibble::kernels {

std::span<const float> HostRopeTable::row(std::int32_t pos) const {
  NIBBLE_CHECK(pos >= 0 && pos < n_positions, "a position beyond the rope table");
  const auto width = static_cast<std::size_t>(rotary_dim);
  return cos_sin.span().subspan(static_cast<std::size_t>(pos) * width, width);
}

std::unique_ptr<Buffer> make_host_vector(std::span<const float> values) {
  auto buffer = std::make_unique<HostBuffer>(values.size());
  std::ranges::copy(values, buffer->data());
  return buffer;
}

namespace {

// The type of a table whose rows nc1 does not look up.
std::optional<DType> dtype_without_look_up(const WeightSource& table) {
  if (std::holds_alternative<Nvfp4View>(table)) return DType::kNVFP4_E2M1;
  const auto* tensor = std::get_if<TensorView>(&table);
  if (tensor == nullptr) return std::nullopt;
  const DType dtype = tensor->dtype;
  const bool is_float = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
  return is_float || find_quant_format(dtype) != nullptr ? std::nullopt : std::optional(dtype);
}

Error no_look_up(std::string_view name, DType dtype) {
  return Error{.message = "an embedding table of a type that nibble does not look up",
               .tensor = std::string(name),
               .found = std::string(dtype_name(dtype)),
               .expected = "F32, F16, BF16, FP8 with its scales, or one of Q4_0 to Q6_K",
               .hint = "convert the file with 'nibble quantize'"};
}

}  // namespace

Result<std::unique_ptr<Embedding>> make_host_embedding(const WeightSource& table) {
  const auto [name, rows, cols] = shape_of(table);
  if (const std::optional<DType> dtype = dtype_without_look_up(table)) return no_look_up(name, *dtype);
  auto embedding = std::make_unique<HostEmbedding>();
  embedding->vocab_size = static_cast<int>(rows);
  embedding->d_model = static_cast<int>(cols);
  embedding->rows = table;
  return std::unique_ptr<Embedding>(std::move(embedding));
}

std::unique_ptr<RopeTable> make_host_rope_table(std::span<const float> cos_sin, int rotary_dim, bool interleaved) {
  NIBBLE_CHECK(rotary_dim > 0 && rotary_dim % 2 == 0 && cos_sin.size() % rotary_dim == 0,
               "a rope table is [n_positions, rotary_dim / 2, 2]");
  auto table = std::make_unique<HostRopeTable>();
  table->n_positions = static_cast<int>(cos_sin.size() / rotary_dim);
  table->rotary_dim = rotary_dim;
  table->interleaved = interleaved;
  table->cos_sin = AlignedBuffer<float>(cos_sin.size());
  std::ranges::copy(cos_sin, table->cos_sin.data());
  return table;
}

}  // namespace nibble::kernels
