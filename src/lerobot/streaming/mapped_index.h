// A sidecar in the form that training uses: mapped, so that opening costs nothing, ranks share its
// pages, and only what is asked for is read.
//
// Made from the sidecar once, under a lock, beside other generations:
//   LEROBOT_HOME/streaming-indexes/mp4-native-<sidecar>-<generation>.bin
// <sidecar> is a digest of the sidecar's path, <generation> one of its inode, times, size and
// content, so a replaced sidecar gets a new file and readers of the old one keep theirs. Every
// reader holds a shared lock on its file; when a new generation is installed, older ones that
// nobody holds are removed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/file_lock.h"
#include "lerobot/base/files.h"
#include "lerobot/streaming/index_format.h"
#include "lerobot/streaming/sidecar_file.h"
#include "lerobot/streaming/video_index.h"

namespace lerobot::streaming {

/// An index file that is not what was written.
class IndexDamaged : public Error {
 public:
  using Error::Error;
};

/// One generation, mapped. Immutable, thread-safe.
class IndexFile {
 public:
  /// Checks the footer. Throws IndexDamaged when it is not ours or not whole, SystemError when the
  /// file can't be opened.
  explicit IndexFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::size_t size() const { return footer_.video_count; }
  std::string_view content_digest() const {
    return {footer_.content_digest.data(), footer_.content_digest.size()};
  }
  std::string_view identity_digest() const {
    return {footer_.identity_digest.data(), footer_.identity_digest.size()};
  }

  // Each throws IndexDamaged when what it looks at is damaged.
  const IndexRecord& record(std::size_t video) const;
  std::string_view video_path(std::size_t video) const;
  std::span<const std::uint8_t> sample_description(std::size_t video) const;
  /// The number of the video with that path; nullopt when there is none.
  std::optional<std::size_t> find(std::string_view path) const;
  TrackSamples samples(std::size_t video) const;

 private:
  enum Checked : std::uint8_t { kNothing, kRecord, kData };

  std::span<const std::uint8_t> slice(std::uint64_t offset, std::uint64_t bytes,
                                      std::string_view what) const;
  std::string_view text(const IndexText& text, std::string_view what) const;
  void check_record(const IndexRecord& record) const;
  void check_data(std::size_t video, const IndexRecord& record) const;
  [[noreturn]] void damaged(std::string_view what) const;

  std::filesystem::path path_;
  UseLock in_use_;
  MappedFile file_;
  IndexFooter footer_;
  std::unique_ptr<std::atomic<std::uint8_t>[]> checked_;  // by video
};

struct IndexOptions {
  /// Folder of everything that is cached: hub::lerobot_home().
  std::filesystem::path lerobot_home;
  /// Wait for another process's conversion.
  std::chrono::duration<double> lock_timeout{1800.0};
  /// Videos converted at the same time.
  int workers = 4;
  /// Called while waiting; what it throws ends the wait.
  std::function<void()> poll;
};

/// The index of an installed sidecar. When a part of the file turns out to be damaged in use, it is
/// converted again from the sidecar, once.
class MappedIndex final : public VideoIndex {
 public:
  /// Opens the sidecar's index, converting it if there is none or a damaged one. Throws Error when
  /// the sidecar is damaged or changes meanwhile, SystemError for what the file system refuses.
  static std::shared_ptr<const MappedIndex> open(const std::filesystem::path& sidecar,
                                                 const IndexOptions& options);
  /// Converts `sidecar` without installing it anywhere: its index replaces none until
  /// install_index() has moved both. The path of a temporary file, which the caller removes.
  static std::filesystem::path convert(const SidecarFile& sidecar, const IndexOptions& options);
  /// Moves a temporary index to the place that belongs to `sidecar`, which it was made from, and
  /// opens it.
  static std::shared_ptr<const MappedIndex> install(const std::filesystem::path& converted,
                                                    const std::filesystem::path& sidecar,
                                                    const IndexOptions& options);
  /// The index if there is one already, null otherwise; never converts.
  static std::shared_ptr<const MappedIndex> open_existing(const std::filesystem::path& sidecar,
                                                          const IndexOptions& options);

  std::size_t size() const { return current()->size(); }
  std::string identity_digest() const { return std::string(current()->identity_digest()); }

  std::size_t file(std::string_view path) const override;
  std::string_view path(std::size_t file) const override;
  std::uint64_t file_bytes(std::size_t file) const override;
  std::uint64_t reserved_bytes_bound(std::size_t file) const override;
  EpisodeSlice slice(std::size_t file, double from_s, double to_s) const override;
  video::Mp4Index samples(std::size_t file, std::size_t first, std::size_t last) const override;

  /// Where the index lies now.
  std::filesystem::path index_path() const { return current()->path(); }

 private:
  MappedIndex(std::filesystem::path sidecar, IndexOptions options,
              std::shared_ptr<const IndexFile> file);

  std::shared_ptr<const IndexFile> current() const;
  std::shared_ptr<const IndexFile> convert_again(const IndexFile& damaged,
                                                 const std::string& why) const;
  template <class Use>
  auto use(const Use& use) const;

  const std::filesystem::path sidecar_;
  const IndexOptions options_;
  mutable std::mutex mutex_;
  // The last one is in use; the ones before stay mapped for views that were given out.
  mutable std::vector<std::shared_ptr<const IndexFile>> files_;
};

}  // namespace lerobot::streaming
