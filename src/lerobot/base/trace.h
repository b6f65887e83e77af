// What the threads of this process do when: spans of time for a profile.
//
// There is one recorder for the process, as there is one log. While it is off a span costs the load
// of a flag.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lerobot::trace {

/// Times are nanoseconds of the system's clock since 1970, which processes of a machine share.
struct Event {
  const char* name;
  std::int64_t begin_ns;
  std::int64_t end_ns;
};

/// What one thread has done.
struct Track {
  std::string name;         ///< the thread's, such as "decode"
  std::int64_t thread = 0;  ///< its number for the kernel
  std::vector<Event> events;
};

std::int64_t now_ns();

/// Begins to record. Thread-safe, as is everything here.
void start();
bool is_on();
/// Ends it and returns what was recorded. A span that is still open then ends with it; one that was
/// open already when it began is not in it.
std::vector<Track> stop();

/// Records how long it lives. `name` is kept as a pointer: a literal.
class Span {
 public:
  explicit Span(const char* name) : is_recorded_(is_on()) {
    if (is_recorded_) begin(name);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() {
    if (is_recorded_) end();
  }

 private:
  static void begin(const char* name);
  static void end();

  bool is_recorded_;
};

}  // namespace lerobot::trace
