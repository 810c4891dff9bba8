// The parts of nibble bench.
#pragma once

#include "apps/commands.h"

namespace nibble::apps {

Command add_bench_op(CLI::App& bench);
Command add_bench_decode(CLI::App& bench);
Command add_bench_prefill(CLI::App& bench);
Command add_bench_load(CLI::App& bench);
Command add_bench_soak(CLI::App& bench);

}  // namespace nibble::apps
