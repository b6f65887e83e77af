// The words of a command line.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lerobot/config/reflection.h"

namespace lerobot::config {

struct Argument {
  std::string name;  // without the dashes
  std::string text;
};

struct Arguments {
  std::vector<Argument> arguments;  // in order, repeated ones included
  std::vector<Problem> problems;
  bool help = false;
};

/// Splits `--name=text` and `--name text`. A word behind a name is its text unless it begins with
/// "--" (or is -h). Words that belong to no name, and names without text, are problems.
Arguments split_arguments(std::span<const std::string> words);

/// Takes the fields of older LeRobot versions out of a configuration file: they mean something only
/// when `use_rabc` is true, which sample_weighting replaced.
void drop_legacy_fields(Json& content);

}  // namespace lerobot::config
