// What is uploaded: a local file or bytes in memory, which must stay as it was found.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lerobot/base/digest.h"
#include "lerobot/base/files.h"
#include "lerobot/hub/http_engine.h"
#include "lerobot/hub/upload.h"

namespace lerobot::hub {

/// Thread-safe. The UploadFile must outlive it.
class UploadContent {
 public:
  /// Looks at size and time of a file. Throws Error when it can't be looked at or is no regular
  /// file.
  explicit UploadContent(const UploadFile& file);

  const std::string& path() const { return file_->path; }
  std::uint64_t size() const { return size_; }
  /// In milliseconds since 1970; of bytes in memory, now.
  std::int64_t modified_ms() const;

  /// Gives the bytes of [offset, offset + size) in pieces of at most 8 MiB. Throws Error when the
  /// file can't be read or is shorter than it was.
  void read(std::uint64_t offset, std::uint64_t size,
            const std::function<void(std::span<const std::uint8_t>)>& take) const;
  std::string read(std::uint64_t offset, std::uint64_t size) const;
  /// The same bytes as a request's body.
  std::unique_ptr<BodySource> body(std::uint64_t offset, std::uint64_t size) const;

  /// Throws Error when size or time of the file are no longer what they were.
  void check_unchanged() const;

 private:
  struct State {
    std::uint64_t size = 0;
    std::int64_t modified_ns = 0;
    bool operator==(const State&) const = default;
  };
  State look() const;

  const UploadFile* file_;
  const std::filesystem::path* local_ = nullptr;  ///< null: in memory
  std::uint64_t size_ = 0;
  std::int64_t modified_ns_ = 0;
};  /// Throws Error for a path that neither a repository nor a Bucket takes: none below its root
/// (is_repo_path()), or not UTF-8.
void check_upload_path(const std::string& path);

}  // namespace lerobot::hub
