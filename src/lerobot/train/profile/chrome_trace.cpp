#include "lerobot/train/profile/chrome_trace.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <map>
#include <set>
#include <unistd.h>
#include <utility>
#include <zlib.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot::train {
namespace {

/// Room for a rank's own process and its GPUs among the processes of a trace.
constexpr std::int64_t kProcessesOfRank = 100;
/// Above what a kernel numbers threads with.
constexpr std::int64_t kFirstMessageThread = 10'000'000;
/// torch numbers its arrows with 32 bits.
constexpr std::int64_t kArrowsOfRank = std::int64_t{1} << 32;

/// Where rows stand: after ours those of other threads, and messages beside communication.
constexpr int kMessages = 1;
constexpr int kLast = 6;

double microseconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

/// Our threads as a reader of the trace calls them, and their order.
struct ThreadRole {
  std::string name;
  int order;
};

ThreadRole role_of(const std::string& thread) {
  static const std::map<std::string, ThreadRole> kRoles = {
      {"pt_gloo_runloop", {"communication", 1}},
      {"reduction", {"communication, sums", 2}},
      {"decode", {"decode", 3}},
      {"fetch", {"fetch", 4}},
      {"checkpoint", {"saver", 5}},
  };
  const auto found = kRoles.find(thread);
  return found == kRoles.end() ? ThreadRole{thread, kLast} : found->second;
}

/// Messages that were sent from the training thread and travel while it does something else: their
/// spans cross those of the thread.
bool is_message(const std::string& name) { return name.starts_with("gloo:"); }

/// A span that is under way beside others.
struct Message {
  std::string name;
  double begin_us;
  double duration_us;
};

class RankEvents {
 public:
  explicit RankEvents(const RankRow& row) : row_(row), process_(row.rank * kProcessesOfRank) {
    name_process(process_,
                 fmt::format("rank {} ({}, process {})", row.rank, row.host, row.process));
    name_thread(process_, row.training_thread, "training", 0);
  }

  void add_kineto(const Json& document) {
    if (!document.is_object() || !document.contains("traceEvents") ||
        !document["traceEvents"].is_array())
      fail("torch's profiler wrote a file without traceEvents");
    const std::int64_t base_ns = document.value("baseTimeNanoseconds", std::int64_t{0});
    // Both are large: their difference first.
    shift_us_ = microseconds(base_ns - row_.origin_ns + row_.clock_offset_ns);
    for (const Json& event : document["traceEvents"]) add_kineto_event(event);
  }

  void add_tracks(const std::vector<trace::Track>& tracks) {
    for (const trace::Track& track : tracks) {
      if (track.thread != row_.training_thread) name_own_thread(track.thread, track.name);
      for (const trace::Event& event : track.events)
        add_span(track.thread, event.name,
                 microseconds(event.begin_ns + row_.clock_offset_ns - row_.origin_ns),
                 microseconds(event.end_ns - event.begin_ns));
    }
  }

  std::string take() {
    add_messages();
    for (const auto& [thread, name] : other_threads_) name_own_thread(thread, name);
    return std::move(text_);
  }

 private:
  void add(const Json& event) {
    if (!text_.empty()) text_ += ",\n";
    // A name from elsewhere is no reason to lose the trace.
    text_ += event.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  void add_metadata(const char* what, std::int64_t process, std::int64_t thread, Json arguments) {
    add({{"ph", "M"},
         {"name", what},
         {"pid", process},
         {"tid", thread},
         {"args", std::move(arguments)}});
  }

  void name_process(std::int64_t process, const std::string& name) {
    add_metadata("process_name", process, 0, {{"name", name}});
    add_metadata("process_sort_index", process, 0, {{"sort_index", process}});
  }

  void name_thread(std::int64_t process, std::int64_t thread, const std::string& name, int order) {
    if (!named_.emplace(process, thread).second) return;
    add_metadata("thread_name", process, thread, {{"name", name}});
    add_metadata("thread_sort_index", process, thread, {{"sort_index", order}});
  }

  /// The trace's process for a number of torch's: this process, or the index of a GPU. Other
  /// processes are rows of its own that say nothing.
  std::optional<std::int64_t> process_of(const Json& number) {
    if (!number.is_number_integer()) return std::nullopt;
    const auto value = number.get<std::int64_t>();
    if (value == row_.process) return process_;
    if (value < 0 || value >= kProcessesOfRank - 1) return std::nullopt;
    const std::int64_t process = process_ + 1 + value;
    if (gpus_.insert(process).second)
      name_process(process, fmt::format("rank {} GPU {}", row_.rank, value));
    return process;
  }

  void add_kineto_event(const Json& original) {
    if (!original.is_object() || !original.contains("ph") || !original.contains("pid")) return;
    const std::string phase = original.value("ph", "");
    // Metadata is our own, but for the names of a GPU's streams.
    if (phase == "M" && original.value("name", "") != "thread_name") return;
    Json event = original;
    if (phase == "M" && event["pid"] == Json(row_.process)) return keep_thread_name(event);
    if (event.value("cat", "") == "Trace") return;  // a row that spans everything
    const auto process = process_of(event["pid"]);
    if (!process || !event.contains("tid") || !event["tid"].is_number_integer()) return;
    event["pid"] = *process;
    if (event.contains("ts") && event["ts"].is_number())
      event["ts"] = event["ts"].get<double>() + shift_us_;
    if (phase == "X" && *process == process_ && event["tid"] == Json(row_.training_thread) &&
        is_message(event.value("name", ""))) {
      messages_.push_back({event["name"], event.value("ts", 0.0), event.value("dur", 0.0)});
      return;
    }
    if (event.contains("id") && event["id"].is_number_integer())
      event["id"] = event["id"].get<std::int64_t>() + row_.rank * kArrowsOfRank;
    add(event);
  }

  /// Of threads that are none of ours. "thread 18237 (pt_gloo_runloop)" has the kernel's name in
  /// it.
  void keep_thread_name(const Json& event) {
    if (!event.contains("tid") || !event["tid"].is_number_integer() || !event.contains("args"))
      return;
    std::string name = event["args"].value("name", "thread");
    const std::size_t open = name.find('('), close = name.rfind(')');
    if (open != std::string::npos && close != std::string::npos && close > open + 1)
      name = name.substr(open + 1, close - open - 1);
    other_threads_[event["tid"].get<std::int64_t>()] = name;
  }

  void add_span(std::int64_t thread, const std::string& name, double begin_us, double duration_us) {
    add({{"ph", "X"},
         {"cat", "lerobot"},
         {"name", name},
         {"pid", process_},
         {"tid", thread},
         {"ts", begin_us},
         {"dur", duration_us}});
  }

  /// Numbered: "decode 1", "decode 2".
  void name_own_thread(std::int64_t thread, const std::string& kernel_name) {
    const auto [name, order] = role_of(kernel_name);
    if (!named_.contains({process_, thread}))
      name_thread(process_, thread, fmt::format("{} {}", name, ++numbers_[name]), order);
  }

  /// Spans of one row must not overlap: as many rows as it takes.
  void add_messages() {
    std::ranges::stable_sort(messages_, {}, &Message::begin_us);
    std::vector<double> ends;  // of the last span in each row
    for (const Message& message : messages_) {
      const auto free =
          std::ranges::find_if(ends, [&](double end) { return end <= message.begin_us; });
      const auto thread = kFirstMessageThread + (free - ends.begin());
      if (free == ends.end())
        name_thread(process_, thread, fmt::format("messages {}", ends.size() + 1), kMessages);
      const double end = message.begin_us + message.duration_us;
      if (free == ends.end())
        ends.push_back(end);
      else
        *free = end;
      add_span(thread, message.name, message.begin_us, message.duration_us);
    }
  }

  const RankRow& row_;
  std::int64_t process_;
  double shift_us_ = 0;
  std::vector<Message> messages_;
  std::map<std::string, int> numbers_;
  std::set<std::pair<std::int64_t, std::int64_t>> named_;
  std::set<std::int64_t> gpus_;
  std::map<std::int64_t, std::string> other_threads_;
  std::string text_;
};

}  // namespace

std::string rank_events(const Json& kineto, const std::vector<trace::Track>& tracks,
                        const RankRow& row) {
  RankEvents events(row);
  events.add_kineto(kineto);
  events.add_tracks(tracks);
  return events.take();
}

TraceFile::TraceFile(fs::path path) : path_(std::move(path)) {
  temporary_ = path_;
  temporary_ += fmt::format(".{}.tmp", ::getpid());
  stream_ = ::gzopen(temporary_.c_str(), "wb6");
  if (stream_ == nullptr) fail_system(errno, "{}: cannot be created", temporary_.string());
  try {
    write("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
  } catch (...) {
    ::gzclose(static_cast<gzFile>(stream_));
    ::unlink(temporary_.c_str());
    throw;
  }
}

TraceFile::~TraceFile() {
  if (stream_ == nullptr) return;
  ::gzclose(static_cast<gzFile>(stream_));
  ::unlink(temporary_.c_str());
}

void TraceFile::write(std::string_view text) {
  while (!text.empty()) {
    const auto bytes =
        static_cast<unsigned>(std::min<std::size_t>(text.size(), std::numeric_limits<int>::max()));
    errno = 0;
    if (::gzwrite(static_cast<gzFile>(stream_), text.data(), bytes) <= 0)
      fail_system(errno != 0 ? errno : EIO, "{}: cannot be written", temporary_.string());
    text.remove_prefix(bytes);
  }
}

void TraceFile::add(const std::string& events) {
  if (events.empty()) return;
  if (!std::exchange(is_empty_, false)) write(",\n");
  write(events);
}

void TraceFile::commit() {
  write("\n]}\n");
  errno = 0;
  if (::gzclose(static_cast<gzFile>(std::exchange(stream_, nullptr))) != Z_OK) {
    const int error = errno != 0 ? errno : EIO;
    ::unlink(temporary_.c_str());
    fail_system(error, "{}: cannot be written", temporary_.string());
  }
  std::error_code error;
  fs::rename(temporary_, path_, error);
  if (error)
    fail("{}: cannot be renamed to {}: {}", temporary_.string(), path_.string(), error.message());
}

}  // namespace lerobot::train
