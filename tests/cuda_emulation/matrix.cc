#include "tests/cuda_emulation/matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <vector>

#include "format/half.h"
#include "format/nvfp4.h"

namespace nibble::cuda_emulation {
namespace {

constexpr int kDepth = 16;
constexpr float kExactLimit = 0x1p24F;

// The largest power of two that divides x; infinity for zero.
float unit_of(float x) {
  const u32 bits = std::bit_cast<u32>(x);
  const u32 exponent = bits >> 23 & 0xFFu, mantissa = (bits & 0x7FFFFFu) | (exponent != 0 ? 0x800000u : 0u);
  if (mantissa == 0) return std::numeric_limits<float>::infinity();
  return std::ldexp(1.0F, static_cast<int>(std::max(exponent, 1u)) - 150 + std::countr_zero(mantissa));
}

float half_of(u32 word, int which) {
  return format::f16_to_f32(which == 0 ? word & 0xFFFFu : word >> 16);
}

struct Row {
  float x[kDepth];
  float unit;  // divides all of x
  void finish() {
    unit = std::numeric_limits<float>::infinity();
    for (const float value : x) unit = std::min(unit, unit_of(value));
  }
};

// In f32, in an order of no kernel.
float rounding_sum_of(const Row& row, const Row& column, float c) {
  float sum = 0;
  for (int k = kDepth; k-- > 0;) sum += row.x[k] * column.x[k];
  return sum + c;
}

// c + the products of row and column. All terms are multiples of one unit, and if their magnitudes sum to less than
// 2^24 of it, every partial sum in every order is exact, these here included.
float sum_of(const Row& row, const Row& column, float c) {
  float sum = c, magnitude = std::fabs(c);
  for (int k = 0; k < kDepth; ++k) {
    const float product = row.x[k] * column.x[k];
    sum += product;
    magnitude += std::fabs(product);
  }
  const float unit = std::min(row.unit * column.unit, unit_of(c));
  const bool is_exact = magnitude < kExactLimit * unit || magnitude == 0;
  return is_exact ? sum : std::numeric_limits<float>::quiet_NaN();
}

float perhaps_wrong(float x) {
  return fault() == Fault::kWrongBit ? std::bit_cast<float>(std::bit_cast<u32>(x) ^ 0x00400000u) : x;
}

using Sum = float (*)(const Row& row, const Row& column, float c);

void multiply_fragments(void* const* lanes, Sum sum) {
  static Row rows[16], columns[8];
  for (int lane = 0; lane < kWarp; ++lane) {
    const auto& mine = *static_cast<const MatrixF16*>(lanes[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < 2; ++i) rows[g + r % 2 * 8].x[2 * t + r / 2 * 8 + i] = half_of(mine.a[r], i);
    }
    for (int r = 0; r < 2; ++r) {
      for (int i = 0; i < 2; ++i) columns[g].x[2 * t + r * 8 + i] = half_of(mine.b[r], i);
    }
  }
  for (Row& row : rows) row.finish();
  for (Row& column : columns) column.finish();
  for (int lane = 0; lane < kWarp; ++lane) {
    auto& c = static_cast<const MatrixF16*>(lanes[lane])->c;
    for (int i = 0; i < 4; ++i) c[i] = sum(rows[lane / 4 + i / 2 * 8], columns[lane % 4 * 2 + i % 2], c[i]);
    if (lane == 5) c[2] = perhaps_wrong(c[2]);
  }
}

}  // namespace

void multiply_f16(void* const* lanes) {
  multiply_fragments(lanes, sum_of);
}
void multiply_f16_rounding(void* const* lanes) {
  multiply_fragments(lanes, rounding_sum_of);
}

namespace {
template <typename A>
void multiply_bytes(void* const* lanes) {
  static int rows[16][32], columns[8][32];
  for (int lane = 0; lane < kWarp; ++lane) {
    const auto& mine = *static_cast<const MatrixS8*>(lanes[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      for (int r = 0; r < 4; ++r) {
        rows[g + r % 2 * 8][4 * t + r / 2 * 16 + i] = static_cast<A>(mine.a[r] >> (8 * i));
      }
      for (int r = 0; r < 2; ++r) columns[g][4 * t + r * 16 + i] = static_cast<std::int8_t>(mine.b[r] >> (8 * i));
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    auto& c = static_cast<const MatrixS8*>(lanes[lane])->c;
    for (int i = 0; i < 4; ++i) {
      const int *row = rows[lane / 4 + i / 2 * 8], *column = columns[lane % 4 * 2 + i % 2];
      int sum = 0;
      for (int k = 0; k < 32; ++k) sum += row[k] * column[k];
      c[i] = static_cast<int>(static_cast<u32>(c[i]) + static_cast<u32>(sum));
    }
  }
}
}  // namespace

void multiply_s8(void* const* lanes) {
  multiply_bytes<std::int8_t>(lanes);
}
void multiply_u8_s8(void* const* lanes) {
  multiply_bytes<std::uint8_t>(lanes);
}

// Element i of a fragment as the PTX manual has it: of a, row g or g + 8 by the second of each pair of registers; of
// both, k is 8t + i % 8, and 32 more in the upper half of the registers. Scales: byte j of a word is of k 16j and on,
// of rows from lanes 4g (row g) and 4g + 1 (row g + 8), of columns from lane 4g.
void multiply_fp4(void* const* lanes) {
  if (gpu().capability / 10 != 12) breach("an FP4 product on a GPU without one");
  constexpr int kDepthFp4 = 64;
  static double rows[16][kDepthFp4], columns[8][kDepthFp4];
  const auto scale_of = [](u32 word, int k) { return double{format::e4m3_decode(word >> (k / 16 * 8) & 0x7Fu)}; };
  const auto code_of = [](u32 word, int i) { return double{format::e2m1_decode(word >> (4 * i) & 15u)}; };
  const auto brought_by = [lanes](int lane) -> const MatrixFp4& { return *static_cast<const MatrixFp4*>(lanes[lane]); };
  for (int lane = 0; lane < kWarp; ++lane) {
    const MatrixFp4& mine = brought_by(lane);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 8; ++i) {
      for (int r = 0; r < 4; ++r) {
        const int k = 8 * t + i + r / 2 * 32;
        rows[g + r % 2 * 8][k] = code_of(mine.a[r], i) * scale_of(brought_by(4 * g + r % 2).a_scales, k);
      }
      for (int r = 0; r < 2; ++r) {
        const int k = 8 * t + i + r * 32;
        columns[g][k] = code_of(mine.b[r], i) * scale_of(brought_by(4 * g).b_scales, k);
      }
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    auto& c = brought_by(lane).c;
    for (int i = 0; i < 4; ++i) {
      double sum = double{c[i]};
      for (int k = 0; k < kDepthFp4; ++k) sum += rows[lane / 4 + i / 2 * 8][k] * columns[lane % 4 * 2 + i % 2][k];
      c[i] = static_cast<float>(sum);
    }
    if (lane == 5) c[2] = perhaps_wrong(c[2]);
  }
}

// --- wgmma ---

namespace {

constexpr int kGroupThreads = 128, kRows = 64;

// Of a thread: what it has started, and how many groups are closed, by their ends.
struct Queue {
  std::vector<Product> products;
  std::vector<std::size_t> ends;
};
Queue& my_queue();

// Row r of a K-major matrix in the 128-byte swizzle: eight rows in 1024 bytes.
Row row_at(u32 matrix, int r) {
  Row row;
  for (int k = 0; k < kDepth; k += 8) {
    const u32 at = matrix + static_cast<u32>(r / 8 * 1024 + r % 8 * 128 + k * 2);
    const auto* piece = static_cast<const std::uint16_t*>(shared_pointer(at ^ (at >> 7 & 7u) << 4, 16));
    for (int i = 0; i < 8; ++i) row.x[k + i] = format::f16_to_f32(piece[i]);
  }
  row.finish();
  return row;
}

std::vector<Row> rows_of_fragments(void* const* threads) {
  std::vector<Row> rows(kRows);
  for (int thread = 0; thread < kGroupThreads; ++thread) {
    const u32* a = static_cast<const Product*>(threads[thread])->registers;
    const int row = thread / 32 * 16 + thread % 32 / 4, k = thread % 4 * 2;
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < 2; ++i) rows[row + r % 2 * 8].x[k + r / 2 * 8 + i] = half_of(a[r], i);
    }
  }
  for (Row& row : rows) row.finish();
  return rows;
}

void multiply_warpgroup(void* const* threads) {
  const auto& first = *static_cast<const Product*>(threads[0]);
  std::vector<Row> rows, columns;
  for (int thread = 0; thread < kGroupThreads; ++thread) {
    const auto& mine = *static_cast<const Product*>(threads[thread]);
    if (mine.a != first.a || mine.b != first.b || mine.n_columns != first.n_columns ||
        (mine.registers == nullptr) != (first.registers == nullptr)) {
      breach("a warpgroup disagrees");
    }
  }
  if (first.registers != nullptr) {
    rows = rows_of_fragments(threads);
  } else {
    for (int r = 0; r < kRows; ++r) rows.push_back(row_at(first.a, r));
  }
  for (int n = 0; n < first.n_columns; ++n) columns.push_back(row_at(first.b, n));
  for (int thread = 0; thread < kGroupThreads; ++thread) {
    const auto& mine = *static_cast<const Product*>(threads[thread]);
    const int row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
    for (int i = 0; i < first.n_columns / 2; ++i) {
      const float c = mine.accumulate ? mine.d[i] : 0.0F;
      const Sum sum = first.rounds ? rounding_sum_of : sum_of;
      mine.d[i] = sum(rows[row + i / 2 % 2 * 8], columns[i / 4 * 8 + column + i % 2], c);
    }
  }
}

Queue& my_queue() {
  static std::deque<Queue> queues;  // grows while others hold theirs
  const auto slot = static_cast<std::size_t>(thread_slot());
  if (queues.size() <= slot) queues.resize(slot + 1);
  return queues[slot];
}

}  // namespace

void start_product(const Product& product) {
  my_queue().products.push_back(product);
}
void commit_products() {
  Queue& queue = my_queue();
  queue.ends.push_back(queue.products.size());
}
void wait_products(int most_pending) {
  Queue& queue = my_queue();
  if (queue.ends.size() <= static_cast<std::size_t>(most_pending)) return;
  const std::size_t n_closing = queue.ends.size() - static_cast<std::size_t>(most_pending);
  const std::size_t n = queue.ends[n_closing - 1];
  for (std::size_t i = 0; i < n; ++i) meet_warpgroup(&queue.products[i], multiply_warpgroup);
  queue.products.erase(queue.products.begin(), queue.products.begin() + static_cast<std::ptrdiff_t>(n));
  queue.ends.erase(queue.ends.begin(), queue.ends.begin() + static_cast<std::ptrdiff_t>(n_closing));
  for (std::size_t& end : queue.ends) end -= n;
}

// --- bulk copies ---

u32 bytes_of_box(const CUtensorMap& map) {
  return map.box[0] * map.box[1] * 2;
}

void copy_box(const CUtensorMap& map, int x, int y, u32 shared) {
  for (u32 row = 0; row < map.box[1]; ++row) {
    for (u32 column = 0; column < map.box[0]; ++column) {
      const u64 from_x = static_cast<u64>(x) + column, from_y = static_cast<u64>(y) + row;
      std::uint16_t value = 0;
      if (from_x < map.extents[0] && from_y < map.extents[1]) {
        std::memcpy(&value, map.memory + from_y * map.row_bytes + from_x * 2, 2);
      }
      const u32 at = shared + row * map.box[0] * 2 + column * 2;
      std::memcpy(shared_pointer(at ^ (at >> 7 & 7u) << 4, 2), &value, 2);
    }
  }
}

void copy_line(u32 shared, const void* global, u32 bytes) {
  for (u32 i = 0; i < bytes; i += 16) {
    std::memcpy(shared_pointer(shared + i, 16), static_cast<const char*>(global) + i, 16);
  }
}

}  // namespace nibble::cuda_emulation

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* memory,
                                const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  if (rank != 2 || reinterpret_cast<std::uintptr_t>(memory) % 16 != 0 || strides[0] % 16 != 0 || box[0] != 64) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *map = {static_cast<const unsigned char*>(memory), {extents[0], extents[1]}, strides[0], {box[0], box[1]}};
  return CUDA_SUCCESS;
}
