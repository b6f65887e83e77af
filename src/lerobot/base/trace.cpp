#include "lerobot/base/trace.h"

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace lerobot::trace {
namespace {

/// Of one thread, which alone adds to it: the mutex is free unless stop() collects.
struct Buffer {
  std::mutex mutex;
  Track track;
  std::vector<Event> open;  // the innermost span last
};

class Recorder {
 public:
  std::atomic<bool> is_on{false};

  std::shared_ptr<Buffer> add_thread() {
    auto buffer = std::make_shared<Buffer>();
    std::array<char, 16> name{};
    if (::pthread_getname_np(::pthread_self(), name.data(), name.size()) == 0)
      buffer->track.name = name.data();
    buffer->track.thread = ::syscall(SYS_gettid);
    const std::lock_guard lock(mutex_);
    threads_.push_back(buffer);
    return buffer;
  }

  void start() {
    take();
    is_on = true;
  }

  std::vector<Track> stop() {
    is_on = false;
    return take();
  }

 private:
  /// What has been recorded, with what is open now; forgets threads that have ended.
  std::vector<Track> take() {
    const std::lock_guard lock(mutex_);
    std::vector<Track> tracks;
    for (const auto& buffer : threads_) {
      const std::lock_guard buffer_lock(buffer->mutex);
      Track track{buffer->track.name, buffer->track.thread,
                  std::exchange(buffer->track.events, {})};
      for (Event event : buffer->open) {
        event.end_ns = now_ns();
        track.events.push_back(event);
      }
      if (!track.events.empty()) tracks.push_back(std::move(track));
    }
    std::erase_if(threads_, [](const auto& buffer) { return buffer.use_count() == 1; });
    return tracks;
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<Buffer>> threads_;
};

Recorder& recorder() {
  static Recorder recorder;
  return recorder;
}

Buffer& own_buffer() {
  thread_local const std::shared_ptr<Buffer> buffer = recorder().add_thread();
  return *buffer;
}

}  // namespace

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void start() { recorder().start(); }

bool is_on() { return recorder().is_on.load(std::memory_order_relaxed); }

std::vector<Track> stop() { return recorder().stop(); }

void Span::begin(const char* name) {
  Buffer& buffer = own_buffer();
  const std::lock_guard lock(buffer.mutex);
  buffer.open.push_back({name, now_ns(), 0});
}

void Span::end() {
  Buffer& buffer = own_buffer();
  const std::lock_guard lock(buffer.mutex);
  Event event = buffer.open.back();
  buffer.open.pop_back();
  event.end_ns = now_ns();
  if (is_on()) buffer.track.events.push_back(event);
}

}  // namespace lerobot::trace
