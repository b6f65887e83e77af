// Runs of lerobot-train in several processes, started by lerobot-launch.
#pragma once

#include <functional>

#include "tests/train/run_fixture.h"

namespace lerobot::train {

class SeveralProcesses : public RunTest {
 protected:
  /// Runs lerobot-train in `ranks` processes. `prelude` is shell code that each of them runs before
  /// (with $RANK). When `after` (if not empty) is in the output, calls `then`.
  Outcome launch(
      int ranks, const std::vector<std::string>& flags, const std::string& prelude = "",
      const std::string& after = "", const std::function<void()>& then = [] {}) const {
    const fs::path start = folder_ / "start.sh";
    write_file_atomic(start, fmt::format("#!/bin/sh\necho $$ > '{}'/pid.$RANK\nOMP_NUM_THREADS=1\n"
                                         "export OMP_NUM_THREADS\n{}\nexec '{}' \"$@\"\n",
                                         folder_.string(), prelude, program("lerobot-train")));
    fs::permissions(start, fs::perms::owner_all);
    return run_command(with({program("lerobot-launch"), "--standalone",
                             fmt::format("--nproc-per-node={}", ranks), start.string()},
                            flags),
                       after, [&](pid_t) { then(); });
  }

  /// Of a running launch().
  void signal_rank(int rank, int signal) const {
    ::kill(std::stoi(read_text_file(folder_ / fmt::format("pid.{}", rank))), signal);
  }

  /// The lines that one rank has written.
  static std::string lines_of_rank(const Outcome& outcome, int rank) {
    const std::string prefix = fmt::format("[rank {}] ", rank);
    std::string found;
    std::istringstream text(outcome.text);
    for (std::string line; std::getline(text, line);)
      if (line.starts_with(prefix)) found += line.substr(prefix.size()) + "\n";
    return found;
  }

  /// The samples of every step, all ranks' together.
  std::vector<Json> steps_of(const std::string& run, int ranks) const {
    std::vector<Json> steps;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto own = samples(run, rank);
      steps.resize(std::max(steps.size(), own.size()), Json::array());
      for (std::size_t i = 0; i < own.size(); ++i)
        for (const Json& index : own[i]["index"]) steps[i].push_back(index);
    }
    return steps;
  }
};

}  // namespace lerobot::train
