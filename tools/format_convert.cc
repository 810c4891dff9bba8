// Converts a stream of floats or codes with src/format, for comparison with other implementations
// (tests/format/ml_dtypes_reference.py).
// usage: format_convert encode|decode e2m1|e4m3|f16|bf16 < in > out
// encode reads f32 and writes u16; decode reads u16 and writes f32; little endian.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "format/half.h"
#include "format/nvfp4.h"

namespace {

using namespace nibble::format;

struct Format {
  std::string name;
  std::uint16_t (*encode)(float);
  float (*decode)(std::uint16_t);
};

const Format kFormats[] = {
    {"e2m1", [](float x) -> std::uint16_t { return e2m1_encode(x); }, [](std::uint16_t c) { return e2m1_decode(c); }},
    {"e4m3", [](float x) -> std::uint16_t { return e4m3_encode(x); }, [](std::uint16_t c) { return e4m3_decode(c); }},
    {"f16", [](float x) { return f32_to_f16(x); }, [](std::uint16_t c) { return f16_to_f32(c); }},
    {"bf16", [](float x) { return f32_to_bf16(x); }, [](std::uint16_t c) { return bf16_to_f32(c); }},
};

template <typename In, typename Out, typename F>
void convert(F f) {
  std::vector<In> in(1 << 16);
  std::vector<Out> out;
  while (const std::size_t n = std::fread(in.data(), sizeof(In), in.size(), stdin)) {
    out.clear();
    for (std::size_t i = 0; i < n; ++i) out.push_back(f(in[i]));
    std::fwrite(out.data(), sizeof(Out), n, stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc == 3 ? argv[1] : "";
  for (const Format& format : kFormats) {
    if (argc != 3 || format.name != argv[2]) continue;
    if (verb == "encode") return convert<float, std::uint16_t>(format.encode), 0;
    if (verb == "decode") return convert<std::uint16_t, float>(format.decode), 0;
  }
  std::fprintf(stderr, "usage: format_convert encode|decode e2m1|e4m3|f16|bf16 < in > out\n");
  return 2;
}
