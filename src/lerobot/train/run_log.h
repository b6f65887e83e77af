// The run's own records in its output folder, one JSON object a line:
//   metrics.jsonl        what the periodic log lines say, and held-out losses
//   samples.rankR.jsonl  with --log_samples=true: step, index, loss, grad_norm in full precision
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "lerobot/base/json.h"

namespace lerobot::train {

/// Appends lines to a file; every line is handed to the system at once, so that a reader sees it
/// and a killed run keeps it.
class JsonLines {
 public:
  /// Lines that an earlier run wrote for steps after `resume_step` are dropped: the resumed run
  /// writes them again. Throws Error naming the file.
  JsonLines(std::filesystem::path path, std::int64_t resume_step);

  void append(const Json& object);

 private:
  std::filesystem::path path_;
  std::ofstream stream_;
};

}  // namespace lerobot::train
