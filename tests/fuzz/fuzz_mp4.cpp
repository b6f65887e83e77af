// Any bytes as an MP4 file: an index or an Error.
#include <cstddef>
#include <cstdint>

#include "lerobot/base/error.h"
#include "lerobot/video/mp4_index.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using lerobot::video::Mp4Index;
  for (const auto use : {lerobot::video::Mp4Use::kDecode, lerobot::video::Mp4Use::kIndex}) {
    try {
      lerobot::video::SpanReader reader({data, size}, "fuzz.mp4");
      const Mp4Index index = Mp4Index::parse(reader, use);
      for (std::size_t frame = 0; frame < index.frame_count(); ++frame)
        index.presentation_time(index.sample_of_frame(frame));
      index.nearest_frame(1.0);
    } catch (const lerobot::Error&) {
      // What the file deserves.
    }
  }
  return 0;
}
