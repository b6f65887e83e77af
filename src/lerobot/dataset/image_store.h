// Encoded images of a dataset's image columns, outside of the heap.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lerobot/base/files.h"

namespace lerobot::dataset {

/// A sequence of byte strings in an unnamed temporary file (under $TMPDIR, else /tmp) that is
/// mapped when it is complete: the kernel keeps what is used in memory and drops the rest under
/// pressure, as it does for the Arrow cache that LeRobot makes for the same purpose. Parquet itself
/// has no random access below a page. Thread-safe once finished.
class ImageStore {
 public:
  ImageStore() = default;
  ImageStore(ImageStore&& other) noexcept;
  ImageStore& operator=(ImageStore&& other) noexcept;
  ~ImageStore();

  /// Appends one image. Throws Error when the temporary file cannot be written.
  void append(std::span<const std::uint8_t> bytes);
  /// No more images come; operator[] works from now on.
  void finish();

  std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()); }
  std::span<const std::uint8_t> operator[](std::int64_t image) const;

 private:
  void flush();

  UniqueFd file_;
  std::vector<std::uint8_t> buffer_;
  std::vector<std::uint64_t> ends_;
  std::uint64_t bytes_ = 0;
  const std::uint8_t* mapping_ = nullptr;
};

}  // namespace lerobot::dataset
