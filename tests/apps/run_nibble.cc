#include "tests/apps/run_nibble.h"

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/engine/tiny_model.h"

namespace nibble::testing {
namespace {

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

std::string quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string(R"('\'')") : std::string(1, c);
  return word + "'";
}

std::string nibble_program() {
  return std::string(NIBBLE_EMULATOR) + " " + quoted(NIBBLE_PROGRAM);
}

Outcome run_shell(const std::string& script) {
  const std::string out = test_folder() + "/stdout";
  const std::string err = test_folder() + "/stderr";
  const std::string command = "{ " + script + "\n} >" + quoted(out) + " 2>" + quoted(err) + " </dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), contents(out), contents(err)};
}

Outcome run_nibble(const std::vector<std::string>& arguments) {
  std::string command = nibble_program();
  for (const std::string& argument : arguments) command += " " + quoted(argument);
  return run_shell(command);
}

}  // namespace nibble::testing
