// lerobot-build-mp4-sidecar: indexes a dataset's MP4 files ahead of training.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lerobot/streaming/sidecar.h"

namespace lerobot::streaming {

/// What the command line asks for; the defaults are those of the program.
struct SidecarArguments {
  std::string repo_id;
  std::string repo_type = "dataset";
  std::optional<std::string> revision;
  std::string data_root;
  std::string output;
  std::optional<std::int64_t> episodes;
  int workers = 8;
  std::optional<std::string> range_backend;
  std::int64_t max_probe_mb = 64;
  bool push = false;
  bool help = false;
};

/// Parses "--name=value", "--name value" and the switches --push and --help. Throws one UsageError
/// that lists everything that is wrong, one a line.
SidecarArguments parse_sidecar_arguments(std::span<const std::string> arguments);

/// The whole program; its exit status: 0, 1 for an error, 2 for a wrong command line, 128 + number
/// of the signal for an interruption, which leaves no file behind.
int sidecar_program(std::span<const std::string> arguments);

}  // namespace lerobot::streaming
