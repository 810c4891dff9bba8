#include "oracle/certificate.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "format/nvfp4.h"

namespace nibble::oracle {

std::int64_t certificate_bound(const Nvfp4Row& w, std::size_t first, std::size_t n) {
  std::int64_t sum = 0;
  int shift = 63;
  for (std::size_t i = first; i < first + n; ++i) {
    const std::uint32_t code = format::nvfp4_code(w.codes[i / 2], static_cast<int>(i % 2));
    const std::int64_t product =
        std::abs(std::int64_t{format::e4m3_x512(w.scales[i / format::kNvfp4Group])} * format::e2m1_x2(code));
    sum += product;
    if (product != 0) shift = std::min(shift, std::countr_zero(static_cast<std::uint64_t>(product)));
  }
  return (kA11Max * sum) >> shift;
}

}  // namespace nibble::oracle
