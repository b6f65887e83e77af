// lerobot-train as a function.
#pragma once

#include <span>
#include <string>

namespace lerobot::train {

/// Runs lerobot-train with these arguments (without the program's name) and returns its exit code:
/// 0; 1 after an Error, 2 for a wrong command line (one message on standard error); 130 and 143
/// when SIGINT or SIGTERM stopped the run after a checkpoint.
int train_program(std::span<const std::string> arguments);

}  // namespace lerobot::train
