// How far an upload is: counted by the threads that do it, told on the caller's.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "lerobot/hub/http_engine.h"
#include "lerobot/hub/upload.h"

namespace lerobot::hub {

/// Thread-safe but for run().
class UploadMeter {
 public:
  explicit UploadMeter(const UploadOptions& options) : options_(options) {}

  /// Does `work` on a thread of its own and calls the progress function on this one, several times
  /// a second and at the end. When that throws, the work is stopped. Throws what stopped the work,
  /// else what `work` threw.
  void run(const std::function<void()>& work);

  /// What is to be sent.
  void expect(std::uint64_t files, std::uint64_t bytes);
  void add_file() { ++files_; }
  /// Negative: they must be sent again.
  void add_bytes(std::int64_t bytes) { bytes_ += bytes; }

  /// From now on check() throws the (first) cause, so that all threads end soon.
  void stop(std::exception_ptr cause);
  /// Throws when the work is stopped.
  void check() const;

  /// `body`, counted on its way. Reading it throws when the work is stopped.
  std::unique_ptr<BodySource> metered(std::unique_ptr<BodySource> body);

 private:
  void report() const;
  void rethrow_cause() const;

  const UploadOptions& options_;
  std::atomic<std::uint64_t> files_ = 0;
  std::atomic<std::uint64_t> all_files_ = 0;
  std::atomic<std::int64_t> bytes_ = 0;
  std::atomic<std::uint64_t> all_bytes_ = 0;
  std::atomic<bool> stopped_ = false;
  mutable std::mutex mutex_;
  std::exception_ptr cause_;
};

}  // namespace lerobot::hub
