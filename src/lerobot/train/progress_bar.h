// One line at the bottom of a terminal: bar, steps, speed, time left, loss.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lerobot::train {

/// Draws on standard error when that is a terminal and the run is not a Slurm job; silent
/// otherwise. Log lines make room for it (log::set_line_hooks). One at a time per process.
class ProgressBar {
 public:
  ProgressBar(std::string title, std::int64_t first, std::int64_t total);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  /// Whether update() would draw: ten times a second, and at the end.
  bool is_due(std::int64_t done) const;
  /// `done` steps are done; `note` follows the numbers ("loss 1.234"). What a narrow terminal has
  /// no room for is left out: the bar first, then the end of the note.
  void update(std::int64_t done, const std::string& note);

 private:
  using Clock = std::chrono::steady_clock;
  std::string title_;
  std::int64_t first_;
  std::int64_t total_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_{};
  bool visible_;
};

}  // namespace lerobot::train
