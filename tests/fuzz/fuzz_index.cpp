// Any bytes as a mapped index: everything that can be asked of it, or an Error.
#include "lerobot/base/error.h"
#include "lerobot/streaming/episode_slice.h"
#include "lerobot/streaming/mapped_index.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const lerobot::fuzz::MemoryFile file(data, size);
  try {
    const lerobot::streaming::IndexFile index(file.path());
    for (std::size_t video = 0; video < index.size(); ++video) {
      index.find(index.video_path(video));
      index.sample_description(video);
      const auto samples = index.samples(video);
      lerobot::streaming::slice_of(samples, 0.5, 1.0, "fuzz");
    }
  } catch (const lerobot::Error&) {
    // What the file deserves.
  }
  return 0;
}
