// Blocks of downloads on their way to the disk: filled by the I/O thread, written and hashed by a
// few others, in memory that is bounded and goes round.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "lerobot/base/threads.h"
#include "lerobot/hub/partial_blob.h"

namespace lerobot::hub {

/// Memory for one block of a blob.
struct Block {
  std::unique_ptr<std::uint8_t[]> memory;
  std::uint64_t offset = 0;  ///< of its first byte in the blob
  std::uint64_t filled = 0;
};

/// Thread-safe. The destructor waits for what has been submitted.
class BlockWriter {
 public:
  /// `freed` is called, by a writer thread, when a block is free again after none was.
  BlockWriter(std::size_t blocks, int threads, std::function<void()> freed);
  ~BlockWriter();

  /// False: the disk is behind.
  bool has_block() const;
  /// Beyond the bounds when none is free: ask has_block() first.
  std::unique_ptr<Block> take();
  /// Writes a block that is full, or the blob's last.
  void submit(std::unique_ptr<Block> block, std::shared_ptr<PartialBlob> blob);
  /// A block that isn't needed after all.
  void give_back(std::unique_ptr<Block> block);

 private:
  const std::size_t most_;
  const std::function<void()> freed_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::vector<std::unique_ptr<Block>> free_;
  std::size_t given_ = 0;    ///< blocks that aren't in free_ now
  std::size_t writing_ = 0;  ///< submitted
  ThreadPool pool_;          // last: its threads use the rest
};

}  // namespace lerobot::hub
