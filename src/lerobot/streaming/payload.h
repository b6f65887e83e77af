// The files of a dataset as byte ranges, wherever they lie: what the streaming reader and the
// sidecar builder read through.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lerobot::streaming {

/// One wanted part of a file.
struct ByteRange {
  std::string path;  ///< relative to the dataset's root, with '/' between its parts
  std::uint64_t offset = 0;
  std::span<std::uint8_t> out;  ///< where the bytes go; its size is the range's length
};

/// Thread-safe: several threads read at once.
class Payload {
 public:
  virtual ~Payload() = default;

  /// What messages call a file: its full path or URL.
  virtual std::string describe(std::string_view path) const = 0;
  /// A file's size in bytes. Throws Error when there is no such file or it can't be reached.
  virtual std::uint64_t size(const std::string& path) = 0;
  /// What tells one content of a file from another of the same size, as a sidecar's
  /// source_fingerprints record it (docs/sidecars.md); nullopt when the place offers nothing.
  virtual std::optional<std::string> fingerprint(const std::string& path) = 0;
  /// Fills every range; those of one call are read side by side where that is faster. Throws Error
  /// naming file, bytes and reason when one of them can't be had in full; never a short read.
  virtual void read(std::span<const ByteRange> ranges) = 0;
  /// Reads that are under way, and all later ones, throw Error soon.
  virtual void cancel() = 0;

  /// Bytes read so far.
  virtual std::uint64_t bytes_read() const = 0;
};

}  // namespace lerobot::streaming
