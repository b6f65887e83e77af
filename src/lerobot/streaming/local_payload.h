// A dataset's files in a local folder.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>

#include "lerobot/base/files.h"
#include "lerobot/base/recently_used.h"
#include "lerobot/streaming/payload.h"

namespace lerobot::streaming {

/// Reads with pread(2) into the caller's memory: unlike a mapping, a file that is cut meanwhile is
/// an Error and not a signal, and pages that are no longer needed do not count as this process's.
class LocalPayload final : public Payload {
 public:
  explicit LocalPayload(std::filesystem::path root);

  std::string describe(std::string_view path) const override;
  std::uint64_t size(const std::string& path) override;
  /// "mtime_ns:ctime_ns", as LeRobot's sidecars record a local file.
  std::optional<std::string> fingerprint(const std::string& path) override;
  void read(std::span<const ByteRange> ranges) override;
  void cancel() override { cancelled_ = true; }
  std::uint64_t bytes_read() const override { return bytes_read_; }

 private:
  /// An open file and what it was when it was opened.
  struct OpenFile {
    UniqueFd fd;
    std::uint64_t size = 0;
    std::int64_t modified_ns = 0;
    std::int64_t changed_ns = 0;
  };
  std::shared_ptr<const OpenFile> open(const std::string& path);
  void read(const ByteRange& range);

  const std::filesystem::path root_;
  std::atomic<bool> cancelled_{false};
  std::atomic<std::uint64_t> bytes_read_{0};
  std::mutex mutex_;
  RecentlyUsed<std::string, std::shared_ptr<const OpenFile>> open_files_;
};

}  // namespace lerobot::streaming
