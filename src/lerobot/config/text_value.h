// The text of one command-line value, and whole configuration files, as JSON.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lerobot/base/json.h"

namespace lerobot::config {

/// A value as LeRobot's command line takes it: JSON or YAML in one line. Plain words are text but
/// for null, ~, true, false, yes, no, on, off and numbers (1e-5, 100_000, .inf). Text that is
/// neither JSON nor YAML stands for itself. Never throws.
Json parse_value(std::string_view text);

// NOLINTNEXTLINE(bugprone-exception-escape): nlohmann's json moves without throwing.
struct ConfigFile {
  Json content;
  /// Dotted names that occur twice in one object.
  std::vector<std::string> duplicates;
  /// YAML does not quote text.
  bool yaml = false;
};

/// Reads a configuration: YAML when the name ends in .yaml or .yml, JSON otherwise. Throws Error
/// naming the file and the place of the first mistake, and when the content is not an object.
ConfigFile read_config_file(const std::filesystem::path& file);

}  // namespace lerobot::config
