// Bodies of requests: from memory, or a part of a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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
  /// `sent` is called, on the engine's thread, with the bytes of each piece that goes out; a rewind
  /// takes them back with a negative number. Throws SystemError when the file can't be opened.
  FileBody(std::filesystem::path path, std::uint64_t offset, std::uint64_t size,
           std::function<void(std::int64_t bytes)> sent = {});

  std::uint64_t size() const override { return size_; }
  void rewind() override;
  /// Throws Error when the file is shorter than it was.
  std::size_t read(std::span<std::uint8_t> out) override;

 private:
  const std::filesystem::path path_;
  UniqueFd fd_;
  const std::uint64_t offset_;
  const std::uint64_t size_;
  const std::function<void(std::int64_t)> sent_;
  std::uint64_t position_ = 0;
};

}  // namespace lerobot::hub
