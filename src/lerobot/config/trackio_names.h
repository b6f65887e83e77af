// How trackio names projects (trackio 0.43).
#pragma once

#include <string>

namespace lerobot::config {

/// The name of a project's files and the one that trackio's commands show: of `project`, ASCII
/// letters, digits, '-' and '_' stay, everything else goes ("my.model": "mymodel"); nothing left is
/// "default".
std::string canonical_trackio_project(const std::string& project);

/// Why `project` can't be a project's name ("names that begin with ... are trackio's own"); empty
/// when it can.
std::string trackio_project_problem(const std::string& project);

}  // namespace lerobot::config
