#include "kernels/host_memory.h"

#include <algorithm>
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

Result<std::unique_ptr<Embedding>> make_host_embedding(const TensorView& table) {
  const bool is_float = table.dtype == DType::kF32 || table.dtype == DType::kF16 || table.dtype == DType::kBF16;
  if (!is_float && find_quant_format(table.dtype) == nullptr) {
    return Error{.message = "an embedding table of a type that nibble does not look up",
                 .tensor = std::string(table.name),
                 .found = std::string(dtype_name(table.dtype)),
                 .expected = "F32, F16, BF16, or one of Q4_0 to Q6_K",
                 .hint = "convert the file with 'nibble quantize'"};
  }
  auto embedding = std::make_unique<HostEmbedding>();
  embedding->vocab_size = static_cast<int>(table.rows());
  embedding->d_model = static_cast<int>(table.cols());
  embedding->table = table;
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
