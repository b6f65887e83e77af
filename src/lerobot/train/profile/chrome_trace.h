// The form of traces that chrome://tracing and Perfetto read: "Trace Event Format",
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
//
// A rank is a process (`pid`) of the trace, its GPU another one below it. Times are microseconds
// from the beginning of the trace.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lerobot/base/json.h"
#include "lerobot/base/trace.h"

namespace lerobot::train {

/// Where a rank's events come from and where they stand.
struct RankRow {
  std::int64_t rank = 0;
  std::string host;
  std::int64_t process = 0;          ///< its number for the kernel
  std::int64_t training_thread = 0;  ///< likewise
  std::int64_t origin_ns = 0;        ///< 0 of the trace, nanoseconds since 1970
  std::int64_t clock_offset_ns = 0;  ///< added to this rank's times
};

/// The events of a rank, one JSON object a line with commas between them: those of torch's profiler
/// (the document that it writes) and those of our own threads. Throws Error when `kineto` is no
/// such document.
std::string rank_events(const Json& kineto, const std::vector<trace::Track>& tracks,
                        const RankRow& row);

/// A trace being written, compressed, under a temporary name. Every failure throws Error naming
/// the file; without commit() nothing is left.
class TraceFile {
 public:
  explicit TraceFile(std::filesystem::path path);
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  ~TraceFile();

  /// What rank_events() returned.
  void add(const std::string& events);
  void commit();

 private:
  void write(std::string_view text);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  void* stream_ = nullptr;  // gzFile
  bool is_empty_ = true;
};

}  // namespace lerobot::train
