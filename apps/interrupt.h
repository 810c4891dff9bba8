// The signals that ask a command to finish, as a flag that it looks at.
#pragma once

#include <initializer_list>

namespace nibble::apps {

// From now on `signals` set the flag. One that was ignored at the start stays ignored, as nohup and background jobs
// expect. `sa_flags` are those of sigaction: SA_RESTART resumes a read, SA_RESETHAND lets the second signal end the
// program.
void catch_interrupts(std::initializer_list<int> signals, int sa_flags);

bool interrupted();
int status_of_signal();  // a shell's status for a program that the last of these signals ended: 130, 143, 129
void clear_interrupt();

}  // namespace nibble::apps
