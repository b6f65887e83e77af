// What one worker writes: shown line by line, kept in files, its last lines remembered.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <string>
#include <utility>

#include "lerobot/base/files.h"
#include "lerobot/distributed/launch/console.h"
#include "lerobot/distributed/launch/line_assembler.h"

namespace lerobot::distributed {

/// One of the worker's two streams.
struct StreamRoute {
  UniqueFd pipe;  // the end that is read, non-blocking
  UniqueFd file;  // where its bytes are kept, unchanged; may be none
  std::string file_name;
  bool shown = true;
};

class WorkerOutput {
 public:
  /// `console` must outlive the object.
  WorkerOutput(int rank, Console& console) : rank_(rank), console_(console) {}

  void connect(Stream stream, StreamRoute route) { of(stream).route = std::move(route); }

  /// The descriptor to wait for, or -1 when the stream has ended.
  int pipe(Stream stream) const { return of(stream).route.pipe.get(); }

  /// Reads what is there, up to some 64 KiB. False when there was nothing.
  bool read(Stream stream);
  /// Reads what is there, whoever else still has the stream open, and closes it.
  void drain(Stream stream);

  /// The last lines, of both streams in the order in which they came.
  const std::deque<std::string>& last_lines() const { return last_lines_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Channel {
    StreamRoute route;
    LineAssembler lines;
    Clock::time_point bar_shown{};
  };

  const Channel& of(Stream stream) const { return channels_[static_cast<std::size_t>(stream)]; }
  Channel& of(Stream stream) { return channels_[static_cast<std::size_t>(stream)]; }

  void take_line(Stream stream, std::string_view line);
  void take_bar(Stream stream, std::string_view bar);
  void keep(Channel& channel, std::string_view bytes);
  void end(Stream stream);

  int rank_;
  Console& console_;
  std::array<Channel, 2> channels_;
  std::deque<std::string> last_lines_;
};

}  // namespace lerobot::distributed
