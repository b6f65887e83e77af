// lerobot-launch as a function.
#pragma once

#include <span>
#include <string>

namespace lerobot::distributed {

/// Runs lerobot-launch with its arguments (without the program's name). Returns the exit code: 0,
/// the failing worker's, 128 + n for a signal, 1 when the program can't be started, 2 for a wrong
/// command line.
int launch_program(std::span<const std::string> arguments);

}  // namespace lerobot::distributed
