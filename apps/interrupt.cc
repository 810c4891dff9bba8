#include "apps/interrupt.h"

#include <csignal>

namespace nibble::apps {
namespace {

volatile std::sig_atomic_t caught = 0;  // the last signal; NOLINT: a signal handler can reach nothing else

}  // namespace

void catch_interrupts(std::initializer_list<int> signals, int sa_flags) {
  struct sigaction action = {};
  action.sa_handler = [](int signal) { caught = signal; };
  action.sa_flags = sa_flags;
  for (const int signal : signals) {
    struct sigaction before = {};
    const bool is_ignored = sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
    if (!is_ignored) sigaction(signal, &action, nullptr);
  }
}

bool interrupted() {
  return caught != 0;
}

int status_of_signal() {
  return 128 + caught;
}

void clear_interrupt() {
  caught = 0;
}

}  // namespace nibble::apps
