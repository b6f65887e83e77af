#include "lerobot/streaming/fetched_video.h"

#include <utility>

#include "lerobot/base/error.h"

namespace lerobot::streaming {

FetchedVideo::FetchedVideo(std::string name, video::Mp4Index index, std::uint64_t byte_offset,
                           PageMemory bytes)
    : name_(std::move(name)),
      index_(std::move(index)),
      byte_offset_(byte_offset),
      bytes_(std::move(bytes)) {
  for (std::size_t sample = 0; sample < index_.samples.size(); ++sample) {
    const std::uint64_t offset = index_.samples.offset(sample);
    if (offset < byte_offset_ || offset - byte_offset_ > bytes_.size() ||
        index_.samples.bytes(sample) > bytes_.size() - (offset - byte_offset_))
      fail("{}: sample {} has {} bytes at {}, outside of the bytes {} to {} that were read", name_,
           sample, index_.samples.bytes(sample), offset, byte_offset_,
           byte_offset_ + bytes_.size());
  }
}

}  // namespace lerobot::streaming
