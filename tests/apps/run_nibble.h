// Runs the program `nibble` as a shell would, for tests of what a person sees.
#pragma once

#include <string>
#include <vector>

namespace nibble::testing {

struct Outcome {
  int status = -1;  // exit status; 128 + n after signal n, as in a shell
  std::string out;
  std::string err;
};

// What a POSIX shell makes the one word `text` of.
std::string quoted(const std::string& text);
// A shell's words for the program: it runs under an emulator in a cross build.
std::string nibble_program();
// `script` through sh. stdin is empty unless the script says otherwise.
Outcome run_shell(const std::string& script);
Outcome run_nibble(const std::vector<std::string>& arguments);

}  // namespace nibble::testing
