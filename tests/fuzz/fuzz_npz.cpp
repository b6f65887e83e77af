// Any bytes as a sidecar: its arrays, all checked, or an Error.
#include "lerobot/base/error.h"
#include "lerobot/streaming/sidecar_file.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const lerobot::fuzz::MemoryFile file(data, size);
  try {
    const lerobot::streaming::SidecarFile sidecar(file.path());
    for (std::size_t video = 0; video < sidecar.manifest().videos.size(); ++video)
      sidecar.arrays(video);
  } catch (const lerobot::Error&) {
    // What the file deserves.
  }
  return 0;
}
