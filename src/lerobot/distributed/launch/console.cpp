#include "lerobot/distributed/launch/console.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

namespace lerobot::distributed {
namespace {

constexpr int kLauncher = -1;
constexpr std::string_view kEraseLine = "\r\x1b[K";

/// The part of a bar that fits on one line of the terminal: a longer one would wrap and could not
/// be erased. Counts code points, which for a bar's characters are columns.
std::string_view fitting(std::string_view text, int columns) {
  int used = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins_character = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
    if (begins_character && used++ == columns) return text.substr(0, i);
  }
  return text;
}

int terminal_columns(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool same_file(int a, int b) {
  struct stat first {
  }, second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

LineSink::LineSink(int fd) : fd_(fd), is_terminal_(::isatty(fd) != 0) {
  struct stat status {};
  is_gone_ = ::fstat(fd, &status) != 0;  // started without it
  is_regular_file_ = S_ISREG(status.st_mode);
}

void LineSink::line(int owner, std::string_view prefix, std::string_view text) {
  if (is_gone_) return;
  const bool bar_goes = bar_owner_ == owner;
  if (!bar_.empty()) pending_ += kEraseLine;
  pending_.append(prefix).append(text).push_back('\n');
  if (bar_goes) bar_.clear();
  pending_ += bar_;
}

void LineSink::bar(int owner, std::string_view prefix, std::string_view text) {
  if (is_gone_ || !is_terminal_) return;
  if (!bar_.empty()) pending_ += kEraseLine;
  bar_.clear();
  bar_owner_ = owner;
  if (text.empty()) return;
  // The prefix is at most "[rank 4095] " and may carry colour.
  constexpr int kPrefixColumns = 12;
  const int columns = std::max(1, terminal_columns(fd_) - kPrefixColumns - 1);
  bar_.append(prefix).append(fitting(text, columns));
  pending_ += bar_;
}

bool LineSink::can_write() const {
  if (is_regular_file_) return true;
  pollfd poll{fd_, POLLOUT, 0};
  return ::poll(&poll, 1, 0) == 1;
}

void LineSink::flush() {
  // The descriptor is shared with whoever started us, so it can't be made non-blocking. But a pipe
  // that is ready takes PIPE_BUF bytes at once.
  const std::size_t most = is_regular_file_ ? kMostPending : PIPE_BUF;
  while (has_pending() && can_write()) {
    const ssize_t n = ::write(fd_, pending_.data() + at_, std::min(most, pending_.size() - at_));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) break;
    if (n < 0) return abandon();  // its reader has gone, or its disk is full
    at_ += static_cast<std::size_t>(n);
  }
  if (!has_pending() || at_ > kMostPending) {
    pending_.erase(0, at_);
    at_ = 0;
  }
}

void LineSink::abandon() {
  is_gone_ = true;
  pending_.clear();
  at_ = 0;
}

Console::Console(int output_fd, int error_fd)
    : output_(std::make_shared<LineSink>(output_fd)),
      error_(same_file(output_fd, error_fd) ? output_ : std::make_shared<LineSink>(error_fd)) {}

std::string Console::prefix(const LineSink& sink, int rank) {
  const std::string text = rank == kLauncher ? "[launch]" : fmt::format("[rank {}]", rank);
  static const bool no_color = [] {
    const char* value = std::getenv("NO_COLOR");  // https://no-color.org
    return value != nullptr && *value != '\0';
  }();
  if (!sink.is_terminal() || no_color) return text + " ";
  constexpr std::array kColors = {36, 33, 32, 35, 34, 31};
  const int color =
      rank == kLauncher ? 1 : kColors[static_cast<std::size_t>(rank) % kColors.size()];
  return fmt::format("\x1b[{}m{}\x1b[0m ", color, text);
}

void Console::worker_line(Stream stream, int rank, std::string_view text) {
  sink(stream).line(rank, prefix(sink(stream), rank), text);
}

void Console::worker_bar(Stream stream, int rank, std::string_view text) {
  sink(stream).bar(rank, prefix(sink(stream), rank), text);
}

void Console::launch_line(std::string_view text) {
  error_->line(kLauncher, prefix(*error_, kLauncher), text);
}

void Console::flush() {
  output_->flush();
  error_->flush();
}

void Console::abandon() {
  output_->abandon();
  error_->abandon();
}

}  // namespace lerobot::distributed
