#include "lerobot/hub/block_writer.h"

#include <utility>

namespace lerobot::hub {

BlockWriter::BlockWriter(std::size_t blocks, int threads, std::function<void()> freed)
    : most_(blocks), freed_(std::move(freed)), pool_(threads, "block writer") {}

BlockWriter::~BlockWriter() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return writing_ == 0; });
}

bool BlockWriter::has_block() const {
  const std::lock_guard lock(mutex_);
  return given_ < most_;
}

std::unique_ptr<Block> BlockWriter::take() {
  {
    const std::lock_guard lock(mutex_);
    ++given_;
    if (!free_.empty()) {
      auto block = std::move(free_.back());
      free_.pop_back();
      return block;
    }
  }
  auto block = std::make_unique<Block>();
  block->memory = std::make_unique_for_overwrite<std::uint8_t[]>(PartialBlob::kBlock);
  return block;
}

void BlockWriter::give_back(std::unique_ptr<Block> block) {
  block->filled = 0;
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = given_ >= most_;
    --given_;
    free_.push_back(std::move(block));
  }
  if (first) freed_();
}

void BlockWriter::submit(std::unique_ptr<Block> block, std::shared_ptr<PartialBlob> blob) {
  blob->expect_write();
  {
    const std::lock_guard lock(mutex_);
    ++writing_;
  }
  // A std::function must be able to copy what it holds.
  const auto held = std::make_shared<std::unique_ptr<Block>>(std::move(block));
  pool_.submit([this, blob = std::move(blob), held] {
    blob->write((*held)->offset, {(*held)->memory.get(), (*held)->filled});
    give_back(std::move(*held));
    const std::lock_guard lock(mutex_);
    --writing_;
    idle_.notify_all();
  });
}

}  // namespace lerobot::hub
