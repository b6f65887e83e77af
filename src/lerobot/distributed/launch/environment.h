// The environment of a process as a value, so that a worker's can be made and looked at before it
// is started.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lerobot::distributed {

using Environment = std::map<std::string, std::string, std::less<>>;

/// What this process was started with and has set since.
Environment current_environment();

/// The value of a variable, or null.
const std::string* find_variable(const Environment& environment, std::string_view name);

/// "NAME=value" lines, as execve() wants them.
std::vector<std::string> as_lines(const Environment& environment);

}  // namespace lerobot::distributed
