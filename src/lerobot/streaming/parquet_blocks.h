// A Parquet file of which some parts are in memory: what Arrow decodes from, so that it never waits
// for a disk or server itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <arrow/io/interfaces.h>
#include <arrow/result.h>

#include "lerobot/streaming/payload.h"

namespace lerobot::streaming {

/// Answers reads inside its blocks; any other is an error.
class ParquetBlocks final : public arrow::io::RandomAccessFile {
 public:
  explicit ParquetBlocks(std::uint64_t file_bytes) : file_bytes_(file_bytes) {}

  /// Makes room for the bytes [begin, end) of the file and returns the range that fills it.
  ByteRange add_block(const std::string& path, std::uint64_t begin, std::uint64_t end);

  arrow::Result<std::int64_t> GetSize() override { return static_cast<std::int64_t>(file_bytes_); }
  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t bytes, void* out) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(std::int64_t position,
                                                       std::int64_t bytes) override;
  arrow::Result<std::int64_t> Read(std::int64_t bytes, void* out) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t bytes) override;
  arrow::Status Seek(std::int64_t position) override;
  arrow::Result<std::int64_t> Tell() const override { return position_; }
  arrow::Status Close() override;
  bool closed() const override { return closed_; }

 private:
  struct Block {
    std::uint64_t begin;
    std::vector<std::uint8_t> bytes;
  };
  arrow::Result<const std::uint8_t*> find(std::int64_t position, std::int64_t bytes) const;
  std::int64_t clamp(std::int64_t position, std::int64_t bytes) const;

  std::uint64_t file_bytes_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::int64_t position_ = 0;
  bool closed_ = false;
};

/// The blocks that hold a Parquet file's footer. Throws Error naming the file when it has none.
std::shared_ptr<ParquetBlocks> read_footer_blocks(Payload& payload, const std::string& path);

}  // namespace lerobot::streaming
