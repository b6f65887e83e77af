// Fetching one file over HTTPS.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace lerobot::hub {

struct DownloadOptions {
  /// Called now and then from the calling thread: bytes so far, and the total (0: unknown).
  std::function<void(std::uint64_t received, std::uint64_t total)> progress;
  std::chrono::seconds connect_timeout{10};
  /// A transfer slower than 1 KiB/s for this long is given up.
  std::chrono::seconds stall_timeout{30};
  /// Plain http is for tests against a local server only.
  bool allow_plain_http = false;
};

/// Fetches `url` (redirects followed, https only) into `destination`, whose folder is made. The
/// file appears as a whole: it is written beside its name, flushed and renamed. Throws Error naming
/// the URL and the reason: offline mode, refused connection, status other than 200, short body,
/// stall.
void download_file(const std::string& url, const std::filesystem::path& destination,
                   const DownloadOptions& options = {});

}  // namespace lerobot::hub
