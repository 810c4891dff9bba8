// One function a subcommand: registers its flags and, when chosen, runs. A command returns the exit status: 0 done,
// 1 the input was refused or a check failed, 2 wrong usage, 3 a gate on a measured figure failed. An Error is printed
// by main in the words of the command's own flags.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/result.h"

namespace nibble::apps {

using Command = std::function<Result<int>()>;

// Adds the subcommand to `app`; the returned function runs it with the parsed flags.
Command add_doctor(CLI::App& app);
Command add_inspect(CLI::App& app);
Command add_verify(CLI::App& app);
Command add_quantize(CLI::App& app);
Command add_run(CLI::App& app);
Command add_chat(CLI::App& app);
Command add_replay(CLI::App& app);
Command add_bench(CLI::App& app);
Command add_ppl(CLI::App& app);
Command add_compare(CLI::App& app);
Command add_report(CLI::App& app);

}  // namespace nibble::apps
