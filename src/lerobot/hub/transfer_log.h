// How far a download or upload is, in the log.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lerobot::hub {

struct TransferProgress {
  std::uint64_t files = 0;
  std::uint64_t all_files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t all_bytes = 0;
};

/// A line at most every two seconds: "Fetching NAME: 12/200 files, 1.2/4.0 GB, 98.1 MB/s". Nothing
/// for what is over sooner.
class TransferLog {
 public:
  /// `verb`: "Fetching", "Uploading".
  TransferLog(std::string verb, std::string name);

  void report(const TransferProgress& state);

 private:
  using Clock = std::chrono::steady_clock;

  std::string verb_;
  std::string name_;
  Clock::time_point last_;
  std::uint64_t last_bytes_ = 0;
  bool told_ = false;  ///< of a part of it
};

/// "1.2/4.0 GB": both in the unit of the second.
std::string describe_bytes(std::uint64_t part, std::uint64_t all);

}  // namespace lerobot::hub
