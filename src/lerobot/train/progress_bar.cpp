#include "lerobot/train/progress_bar.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "lerobot/base/log.h"

namespace lerobot::train {
namespace {

/// What stands on the terminal's last line now; the log's hooks clear and restore it.
struct Line {
  std::mutex mutex;
  std::string text;
};

Line& current_line() {
  static Line line;
  return line;
}

void put(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

void clear_line() {
  std::lock_guard lock(current_line().mutex);
  if (!current_line().text.empty()) put("\r\x1b[K");
}

void restore_line() {
  std::lock_guard lock(current_line().mutex);
  if (!current_line().text.empty()) put(current_line().text);
}

int terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string clock_text(double seconds) {
  const auto total = static_cast<std::int64_t>(seconds);
  const auto hours = total / 3600;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, total / 60 % 60, total % 60)
                   : fmt::format("{:02}:{:02}", total / 60, total % 60);
}

}  // namespace

ProgressBar::ProgressBar(std::string title, std::int64_t first, std::int64_t total)
    : title_(std::move(title)),
      first_(first),
      total_(total),
      visible_(::isatty(STDERR_FILENO) != 0 && std::getenv("SLURM_JOB_ID") == nullptr) {
  if (visible_) log::set_line_hooks(clear_line, restore_line);
}

ProgressBar::~ProgressBar() {
  if (!visible_) return;
  log::set_line_hooks(nullptr, nullptr);
  std::lock_guard lock(current_line().mutex);
  if (!current_line().text.empty()) put("\n");
  current_line().text.clear();
}

bool ProgressBar::is_due(std::int64_t done) const {
  return visible_ && (done >= total_ || Clock::now() - drawn_ >= std::chrono::milliseconds(100));
}

void ProgressBar::update(std::int64_t done, const std::string& note) {
  if (!is_due(done)) return;
  const auto now = Clock::now();
  drawn_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(done - first_) / seconds : 0;
  const double left = rate > 0 ? static_cast<double>(total_ - done) / rate : 0;
  const double fraction = total_ > 0 ? static_cast<double>(done) / static_cast<double>(total_) : 1;
  const std::string head = fmt::format("{}: {:3.0f}%|", title_, 100 * fraction);
  std::string numbers =
      fmt::format("| {}/{} [{}<{}, {:.2f} step/s] {}", done, total_, clock_text(seconds),
                  rate > 0 ? clock_text(left) : "?", rate, note);
  // A line that wraps can't be drawn over.
  const int room = std::max(terminal_columns() - 1, 20) - static_cast<int>(head.size());
  numbers.resize(std::min(numbers.size(), static_cast<std::size_t>(std::max(room, 0))));
  const int width = std::clamp(room - static_cast<int>(numbers.size()), 0, 40);
  const int filled = static_cast<int>(fraction * width);
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < filled ? "█" : " ";
  std::lock_guard lock(current_line().mutex);
  current_line().text = "\r\x1b[K" + head + bar + numbers;
  put(current_line().text);
}

}  // namespace lerobot::train
