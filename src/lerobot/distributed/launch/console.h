// The launcher's own standard output and error, written in whole lines and without waiting.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace lerobot::distributed {

enum class Stream { kOutput, kError };

/// A descriptor that lines are written to. A reader that does not read (a pager, a stopped
/// terminal) must not stop the launcher, so lines wait here. A reader that has gone away ends
/// nothing: the lines are dropped. The descriptor must outlive the object.
class LineSink {
 public:
  explicit LineSink(int fd);

  bool is_terminal() const { return is_terminal_; }

  /// A line of `owner` (a rank, or -1); `text` without its end. A bar of the same owner goes.
  void line(int owner, std::string_view prefix, std::string_view text);
  /// On a terminal: the last line of the screen, until the next bar. Elsewhere nothing.
  void bar(int owner, std::string_view prefix, std::string_view text);

  /// Writes what can be written without waiting.
  void flush();
  bool has_pending() const { return at_ < pending_.size(); }
  /// So much waits that no more should be read from the workers.
  bool is_full() const { return pending_.size() - at_ > kMostPending; }
  int fd() const { return fd_; }
  /// Drops what waits and whatever follows.
  void abandon();

 private:
  static constexpr std::size_t kMostPending = 1 << 20;

  bool can_write() const;

  int fd_;
  bool is_terminal_ = false;
  bool is_regular_file_ = false;
  bool is_gone_ = false;
  std::string pending_;
  std::size_t at_ = 0;  // what lies before it has been written
  std::string bar_;
  int bar_owner_ = -1;
};

/// Both streams. Where they are the same file, pipe or terminal they share a sink, so that their
/// lines don't mix.
class Console {
 public:
  Console(int output_fd, int error_fd);

  LineSink& sink(Stream stream) { return stream == Stream::kOutput ? *output_ : *error_; }

  /// A line of a worker, marked with its rank.
  void worker_line(Stream stream, int rank, std::string_view text);
  /// The present state of a worker's progress bar.
  void worker_bar(Stream stream, int rank, std::string_view text);
  /// A line of the launcher itself, on standard error.
  void launch_line(std::string_view text);

  void flush();
  bool has_pending() const { return output_->has_pending() || error_->has_pending(); }
  bool is_full() const { return output_->is_full() || error_->is_full(); }
  void abandon();

 private:
  static std::string prefix(const LineSink& sink, int rank);

  std::shared_ptr<LineSink> output_;
  std::shared_ptr<LineSink> error_;
};

}  // namespace lerobot::distributed
