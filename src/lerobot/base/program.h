// The end of a program: what it says about an exception, and its exit code.
#pragma once

#include <functional>

namespace lerobot {

/// The exit code of `run`, or of what it throws: a wrong command line goes to standard error as the
/// user typed it and tells the program's name, everything else to the log. `interrupted_note`
/// follows what an interrupt says about itself.
int run_program(const char* name, const std::function<int()>& run,
                const char* interrupted_note = "");

}  // namespace lerobot
