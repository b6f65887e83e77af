// Bodies of requests: from memory, or a part of a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "lerobot/base/files.h"
#include "lerobot/hub/http_engine.h"

namespace lerobot::hub {

class TextBody final : public BodySource {
 public:
  explicit TextBody(std::string text) : text_(std::move(text)) {}

  std::uint64_t size() const override { return text_.size(); }
  void rewind() override { position_ = 0; }
  std::size_t read(std::span<std::uint8_t> out) override;

 private:
  const std::string text_;
  std::size_t position_ = 0;
};

/// Bytes [offset, offset + size) of a file, which must not change meanwhile.
class FileBody final : public BodySource {
 public:
  /// Throws SystemError when the file can't be opened.
  FileBody(std::filesystem::path path, std::uint64_t offset, std::uint64_t size);

  std::uint64_t size() const override { return size_; }
  void rewind() override { position_ = 0; }
  /// Throws Error when the file is shorter than it was.
  std::size_t read(std::span<std::uint8_t> out) override;

 private:
  const std::filesystem::path path_;
  UniqueFd fd_;
  const std::uint64_t offset_;
  const std::uint64_t size_;
  std::uint64_t position_ = 0;
};

}  // namespace lerobot::hub
