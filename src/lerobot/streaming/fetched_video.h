// One camera of one episode: its coded frames in memory.
#pragma once

#include <cstdint>
#include <string>

#include "lerobot/base/page_memory.h"
#include "lerobot/video/packet_source.h"

namespace lerobot::streaming {

/// Owns the bytes of consecutive samples of a video file. Immutable and thread-safe.
class FetchedVideo final : public video::PacketSource {
 public:
  /// `index` holds the samples, with their offsets in the file; `bytes` are the file's from
  /// `byte_offset` on and cover them all. Throws Error otherwise.
  FetchedVideo(std::string name, video::Mp4Index index, std::uint64_t byte_offset,
               PageMemory bytes);

  std::string_view name() const override { return name_; }
  const video::Mp4Index& index() const override { return index_; }
  std::span<const std::uint8_t> packet(std::size_t sample) const override {
    return bytes_.bytes().subspan(index_.samples.offset(sample) - byte_offset_,
                                  index_.samples.bytes(sample));
  }
  std::uint64_t bytes() const { return bytes_.size(); }

 private:
  std::string name_;
  video::Mp4Index index_;
  std::uint64_t byte_offset_;
  PageMemory bytes_;
};

}  // namespace lerobot::streaming
