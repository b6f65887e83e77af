#include "lerobot/streaming/parquet_blocks.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include <arrow/buffer.h>
#include <arrow/result.h>
#include <arrow/status.h>

#include "lerobot/base/error.h"

namespace lerobot::streaming {
namespace {

/// Most footers fit into one read of this size; Arrow itself begins with one as large.
constexpr std::uint64_t kFooterGuess = std::uint64_t{64} << 10;
/// Length of the metadata (4 bytes) and "PAR1" end a file (parquet-format, "File format").
constexpr std::uint64_t kTailBytes = 8;

}  // namespace

ByteRange ParquetBlocks::add_block(const std::string& path, std::uint64_t begin,
                                   std::uint64_t end) {
  check_internal(begin <= end && end <= file_bytes_, "a block lies inside its file");
  blocks_.push_back(std::make_unique<Block>(Block{begin, std::vector<std::uint8_t>(end - begin)}));
  return {path, begin, blocks_.back()->bytes};
}

std::int64_t ParquetBlocks::clamp(std::int64_t position, std::int64_t bytes) const {
  const auto size = static_cast<std::int64_t>(file_bytes_);
  return std::clamp<std::int64_t>(bytes, 0, std::max<std::int64_t>(0, size - position));
}

arrow::Result<const std::uint8_t*> ParquetBlocks::find(std::int64_t position,
                                                       std::int64_t bytes) const {
  if (position < 0 || bytes < 0) return arrow::Status::IOError("a read of negative size");
  const auto begin = static_cast<std::uint64_t>(position);
  for (const auto& block : blocks_)
    if (begin >= block->begin && begin - block->begin <= block->bytes.size() &&
        static_cast<std::uint64_t>(bytes) <= block->bytes.size() - (begin - block->begin))
      return block->bytes.data() + (begin - block->begin);
  return arrow::Status::IOError("bytes ", position, " to ", position + bytes,
                                " belong to no row group that was asked for");
}

arrow::Result<std::int64_t> ParquetBlocks::ReadAt(std::int64_t position, std::int64_t bytes,
                                                  void* out) {
  const std::int64_t length = clamp(position, bytes);
  ARROW_ASSIGN_OR_RAISE(const std::uint8_t* data, find(position, length));
  std::memcpy(out, data, static_cast<std::size_t>(length));
  return length;
}

arrow::Result<std::shared_ptr<arrow::Buffer>> ParquetBlocks::ReadAt(std::int64_t position,
                                                                    std::int64_t bytes) {
  const std::int64_t length = clamp(position, bytes);
  ARROW_ASSIGN_OR_RAISE(const std::uint8_t* data, find(position, length));
  return std::make_shared<arrow::Buffer>(data, length);
}

arrow::Result<std::int64_t> ParquetBlocks::Read(std::int64_t bytes, void* out) {
  ARROW_ASSIGN_OR_RAISE(const std::int64_t length, ReadAt(position_, bytes, out));
  position_ += length;
  return length;
}

arrow::Result<std::shared_ptr<arrow::Buffer>> ParquetBlocks::Read(std::int64_t bytes) {
  ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, bytes));
  position_ += buffer->size();
  return buffer;
}

arrow::Status ParquetBlocks::Seek(std::int64_t position) {
  if (position < 0) return arrow::Status::IOError("a seek to a negative position");
  position_ = position;
  return arrow::Status::OK();
}

arrow::Status ParquetBlocks::Close() {
  closed_ = true;
  return arrow::Status::OK();
}

std::shared_ptr<ParquetBlocks> read_footer_blocks(Payload& payload, const std::string& path) {
  const std::uint64_t file_bytes = payload.size(path);
  const std::string name = payload.describe(path);
  if (file_bytes < kTailBytes)
    fail("{}: is no Parquet file: it has {} bytes; fetch it again", name, file_bytes);
  auto blocks = std::make_shared<ParquetBlocks>(file_bytes);
  const std::uint64_t guess = std::min(file_bytes, kFooterGuess);
  const ByteRange tail = blocks->add_block(path, file_bytes - guess, file_bytes);
  payload.read({&tail, 1});
  const std::uint8_t* end = tail.out.data() + tail.out.size();
  if (std::string_view(reinterpret_cast<const char*>(end - 4), 4) != "PAR1")
    fail("{}: is no Parquet file or was cut short: it does not end in \"PAR1\"; fetch it again",
         name);
  std::uint32_t footer_bytes = 0;
  std::memcpy(&footer_bytes, end - kTailBytes, sizeof footer_bytes);
  if (footer_bytes > file_bytes - kTailBytes)
    fail("{}: is damaged: its footer is said to have {} bytes, the file has {}; fetch it again",
         name, footer_bytes, file_bytes);
  if (footer_bytes + kTailBytes > guess) {
    const ByteRange footer =
        blocks->add_block(path, file_bytes - footer_bytes - kTailBytes, file_bytes);
    payload.read({&footer, 1});
  }
  return blocks;
}

}  // namespace lerobot::streaming
