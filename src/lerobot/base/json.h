// JSON as Python's json module reads and writes it, over nlohmann::ordered_json.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace lerobot {

/// Objects keep the order in which their keys were written: LeRobot's files do.
using Json = nlohmann::ordered_json;

/// Parses a file. Throws Error naming the file and the place of the first mistake. Accepts Python's
/// NaN, Infinity and -Infinity, which become floating-point values.
Json read_json_file(const std::filesystem::path& path);

/// Parses text; `name` stands for the file in messages.
Json parse_json(std::string_view text, std::string_view name);

/// Dotted names of the keys that occur twice in one object of a JSON text, of which parsers
/// silently keep one. Empty for text that is not valid JSON.
std::vector<std::string> duplicate_json_keys(std::string_view text);

/// The text that Python's json.dumps(value, indent=indent, ensure_ascii=ensure_ascii) gives, to the
/// byte: floats as repr() writes them (1e-05, 0.0, NaN), no newline at the end. indent < 0 gives
/// the one-line form with ", " and ": ".
std::string to_python_json(const Json& value, int indent, bool ensure_ascii = true);

/// repr() of a Python float: the shortest digits that read back equal.
std::string python_float(double value);

}  // namespace lerobot
