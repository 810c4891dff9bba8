// Speed of the linear kernels beside the limits of the machine, both measured in one run, through the Backend's own
// interface. Outputs are compared with the contract as plain loops (backend `reference`) on the same data, so that a
// kernel that is fast and wrong is a failure and not a result.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "measure/facts.h"
#include "measure/op_layer.h"

namespace nibble::measure {

Result<OpShape> parse_shape(const std::string& text);  // "14336x4096": n x k

struct OpOptions {
  std::vector<OpShape> shapes = {{14336, 4096}, {4096, 14336}};
  std::vector<std::string> formats = {"nvfp4"};  // of op_formats()
  std::string backend = "cpu";
  std::vector<std::string> isas = {};  // empty: the best of this machine; "all": every one
  std::vector<int> threads = {};       // empty: 1 and all
  bool pins_threads = true;            // as of kernels::BackendOptions
  std::vector<int> tokens = {1, 512};  // m; up to 16 are a gemv, more a gemm
  bool from_cache = false;             // gemv: one matrix again and again, instead of many in turn
  double row_seconds = 1;              // samples of a row until then, five at least
  std::string ggml_python = {};        // if set: ggml in turn, through this Python with llama-cpp-python
  bool quick = false;                  // ends within quick_seconds: fewer samples, and fewer tokens of a gemm
  double quick_seconds = 40;
};

// Called as a row is done or left out. What it is beside the limit is known when all are: a limit may yet rise.
using OpProgress = std::function<void(std::size_t done, std::size_t of)>;

// {"what": "bench op", program facts, "machine": {facts, "read_gb_per_s": {threads: x}, "int16_gop_per_s": {isa:
// {threads: x}}}, "rows": [...]}. A row: op, format, m, n, k, isa, threads, data ("ram": matrices in turn that no cache
// holds; "cache": matrices that fit into one; "any": a gemm), repetitions, samples_s, median_s, cv, bytes (of weights),
// ops (2mnk), limit_kind ("read_gb_per_s": bytes / median_s, "int16_gop_per_s": ops / median_s), achieved, limit,
// share, digest (SHA-256 of the outputs). limit and share are null of a backend whose limit is not known. With ggml
// beside it a row has "peer": {peer, description, samples_s, median_s, cv, achieved} and "speed_over_peer": {ratio,
// low, high}, of samples that alternate. Of a quick run "budget": {"seconds", "hit"}, hit where a row has fewer than
// five repetitions or rows are missing, which "left_out" names; a gemm that ran with fewer tokens has "m_asked". Fails
// where a digest is not that of the reference.
Result<Json> bench_ops(const OpOptions& options, const OpProgress& progress = {});

}  // namespace nibble::measure
