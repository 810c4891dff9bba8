// What backends hold in the same way when their memory is the host's: buffers, rope tables, rows of the embedding.
#pragma once

#include <memory>
#include <span>

#include "base/aligned_buffer.h"
#include "kernels/backend.h"

namespace nibble::kernels {

struct HostBuffer final : Buffer {
  explicit HostBuffer(std::size_t n) : floats(n) {}
  float* data() override { return floats.data(); }
  std::size_t size() const override { return floats.size(); }
  AlignedBuffer<float> floats;
};

struct HostEmbedding final : Embedding {
  WeightSource rows;  // [vocab_size, d_model]: floats of 16 or 32 bits, FP8, or blocks of a quantized type
};

struct HostRopeTable final : RopeTable {
  AlignedBuffer<float> cos_sin;  // [n_positions, rotary_dim / 2, 2]
  std::span<const float> row(std::int32_t pos) const;
};

std::unique_ptr<Buffer> make_host_vector(std::span<const float> values);
// Refuses a table of a type whose rows nc1 does not look up.
Result<std::unique_ptr<Embedding>> make_host_embedding(const WeightSource& table);
std::unique_ptr<RopeTable> make_host_rope_table(std::span<const float> cos_sin, int rotary_dim, bool interleaved);

}  // namespace nibble::kernels
