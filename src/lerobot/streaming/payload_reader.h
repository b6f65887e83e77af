// One file of a payload as the MP4 parser reads it: headers here and there, then one large box.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lerobot/streaming/payload.h"
#include "lerobot/video/mp4_index.h"

namespace lerobot::streaming {

/// How much of a file is read in search of its index.
struct ProbeOptions {
  /// Bytes of one read. The index of a file with moov in front mostly lies in the first one; behind
  /// a round trip of 30 ms half a mebibyte costs about as much as the trip itself at 20 MB/s.
  std::uint64_t block_bytes = 512 << 10;
  /// Bytes of all reads of one file.
  std::uint64_t max_bytes = std::uint64_t{64} << 20;
};

/// Keeps the last block, so that neighbouring headers cost one read. Single-threaded.
class PayloadReader final : public video::ByteReader {
 public:
  PayloadReader(Payload& payload, std::string path, ProbeOptions options);

  std::string_view name() const override { return name_; }
  std::uint64_t size() const override { return size_; }
  /// Throws Error when the file's reads together would exceed max_bytes.
  std::span<const std::uint8_t> read(std::uint64_t offset, std::uint64_t length) override;

 private:
  void fetch(std::uint64_t offset, std::uint64_t length);

  Payload& payload_;
  const std::string path_;
  const std::string name_;
  const ProbeOptions options_;
  const std::uint64_t size_;
  std::uint64_t fetched_ = 0;
  std::uint64_t block_offset_ = 0;
  std::vector<std::uint8_t> block_;
};

}  // namespace lerobot::streaming
