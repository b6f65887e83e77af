// Makes a sidecar from the MP4 files themselves.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>

#include "lerobot/streaming/payload.h"
#include "lerobot/streaming/payload_reader.h"
#include "lerobot/streaming/sidecar.h"

namespace lerobot::streaming {

struct SidecarBuildOptions {
  /// Files indexed at the same time: at most so many indexes are in memory at once.
  int workers = 8;
  ProbeOptions probe;
  /// Called from the threads, one call at a time, after each file.
  std::function<void(std::size_t done, std::size_t total)> progress;
  /// Called about twenty times a second on the calling thread. What it throws stops the build;
  /// reads under way are cancelled, and the payload with them.
  std::function<void()> poll;
};

/// "Indexed i/n MP4 files" in the log, about every 5 %.
std::function<void(std::size_t, std::size_t)> log_progress();

/// Indexes every source of `identity` and writes the archive to `output`, flushed to the device;
/// nothing is left when it throws. The archive records the sizes that the sources really have.
///
/// A finished index goes to a nameless temporary file beside the output, so memory follows the
/// files under way and not their number. Throws Error naming the file that can't be read or is no
/// MP4, or that changed meanwhile.
void build_sidecar(const SidecarIdentity& identity, Payload& payload,
                   const std::filesystem::path& output, const SidecarBuildOptions& options = {});

}  // namespace lerobot::streaming
