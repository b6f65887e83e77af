// lerobot-convert-dcp: merges the shards of a checkpoint into model.safetensors, without a GPU.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace lerobot::checkpoint {

/// What the command line asks for; the defaults are those of the program.
struct ConvertArguments {
  std::string checkpoint_dir;
  bool delete_dcp = false;
  std::optional<std::string> push_to_hub;  ///< OWNER/NAME
  bool help = false;
};

/// Parses "--name=value" and "--name value". Throws one UsageError that lists everything that is
/// wrong, one a line.
ConvertArguments parse_convert_arguments(std::span<const std::string> arguments);

/// The whole program; its exit status: 0, 1 for an error, 2 for a wrong command line, 128 + number
/// of the signal for an interruption, which leaves the checkpoint as it was.
int convert_program(std::span<const std::string> arguments);

}  // namespace lerobot::checkpoint
