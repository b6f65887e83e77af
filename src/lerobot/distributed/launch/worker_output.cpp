#include "lerobot/distributed/launch/worker_output.h"

#include <array>
#include <cerrno>
#include <unistd.h>
#include <utility>

#include "lerobot/base/error.h"

namespace lerobot::distributed {
namespace {

constexpr std::size_t kLastLines = 20;
constexpr std::size_t kLongestLastLine = 1000;
/// Between two states of a progress bar where it can't be redrawn in place.
constexpr std::chrono::seconds kBarInterval{10};

}  // namespace

bool WorkerOutput::read(Stream stream) {
  Channel& channel = of(stream);
  if (channel.route.pipe.get() < 0) return false;
  std::array<char, 1 << 16> buffer;
  const ssize_t n = ::read(channel.route.pipe.get(), buffer.data(), buffer.size());
  if (n < 0) return errno == EINTR;
  if (n == 0) {
    end(stream);
    return false;
  }
  const std::string_view bytes(buffer.data(), static_cast<std::size_t>(n));
  keep(channel, bytes);
  channel.lines.feed(
      bytes, [&](std::string_view line) { take_line(stream, line); },
      [&](std::string_view bar) { take_bar(stream, bar); });
  return true;
}

void WorkerOutput::drain(Stream stream) {
  while (!console_.is_full() && read(stream)) console_.flush();
  if (!console_.is_full()) end(stream);
}

void WorkerOutput::end(Stream stream) {
  Channel& channel = of(stream);
  channel.lines.finish([&](std::string_view line) { take_line(stream, line); });
  channel.route.pipe = UniqueFd();
}

void WorkerOutput::take_line(Stream stream, std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  last_lines_.emplace_back(line.substr(0, kLongestLastLine));
  if (last_lines_.size() > kLastLines) last_lines_.pop_front();
  if (of(stream).route.shown) console_.worker_line(stream, rank_, line);
}

void WorkerOutput::take_bar(Stream stream, std::string_view bar) {
  Channel& channel = of(stream);
  if (!channel.route.shown) return;
  if (console_.sink(stream).is_terminal()) return console_.worker_bar(stream, rank_, bar);
  const auto now = Clock::now();
  if (bar.empty() || now - channel.bar_shown < kBarInterval) return;
  channel.bar_shown = now;
  console_.worker_line(stream, rank_, bar);
}

void WorkerOutput::keep(Channel& channel, std::string_view bytes) {
  while (!bytes.empty() && channel.route.file.get() >= 0) {
    const ssize_t n = ::write(channel.route.file.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      // The run is worth more than its log.
      console_.launch_line(fmt::format("{}: cannot be written, its output is lost from here on: {}",
                                       channel.route.file_name, system_error_text(errno)));
      channel.route.file = UniqueFd();
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace lerobot::distributed
