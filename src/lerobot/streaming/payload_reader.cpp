#include "lerobot/streaming/payload_reader.h"

#include <algorithm>
#include <utility>

#include "lerobot/base/error.h"

namespace lerobot::streaming {

PayloadReader::PayloadReader(Payload& payload, std::string path, ProbeOptions options)
    : payload_(payload),
      path_(std::move(path)),
      name_(payload.describe(path_)),
      options_(options),
      size_(payload.size(path_)) {
  if (size_ == 0) fail("{}: is empty, expected an MP4 file; copy or download it again", name_);
}

std::span<const std::uint8_t> PayloadReader::read(std::uint64_t offset, std::uint64_t length) {
  check_internal(offset <= size_ && length <= size_ - offset, "a read outside the file");
  const std::uint64_t end = block_offset_ + block_.size();
  if (offset < block_offset_ || offset > end || length > end - offset) fetch(offset, length);
  return std::span(block_).subspan(offset - block_offset_, length);
}

void PayloadReader::fetch(std::uint64_t offset, std::uint64_t length) {
  // What the block holds of the wanted bytes stays; only the rest is read.
  const std::uint64_t end = block_offset_ + block_.size();
  const std::uint64_t kept = offset >= block_offset_ && offset < end ? end - offset : 0;
  const std::uint64_t wanted =
      std::min(std::max(length - kept, options_.block_bytes), size_ - offset - kept);
  // A file's last block may be shorter than the limit allows; what must be read may not be longer.
  const std::uint64_t allowed = options_.max_bytes - std::min(options_.max_bytes, fetched_);
  if (length - kept > allowed)
    fail(
        "{}: could not find the complete MP4 index ('moov') in {} bytes of the file: {} more at "
        "byte {} would be needed; raise --max-probe-mb (now {}), or remux it: "
        "ffmpeg -i in.mp4 -c copy -movflags +faststart out.mp4",
        name_, fetched_, length - kept, offset + kept, options_.max_bytes >> 20);
  const std::uint64_t reading = std::min(wanted, allowed);
  if (kept > 0) {
    block_.erase(block_.begin(), block_.end() - static_cast<std::ptrdiff_t>(kept));
  } else {
    block_.clear();
  }
  block_offset_ = offset;
  block_.resize(kept + reading);
  const ByteRange range{path_, offset + kept, std::span(block_).subspan(kept)};
  payload_.read({&range, 1});
  fetched_ += reading;
}

}  // namespace lerobot::streaming
