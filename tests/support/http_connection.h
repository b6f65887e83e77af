// One connection of a test server: requests as they are read, answers as they are sent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tests/support/http_message.h"

namespace lerobot::test_server {

/// Bodies up to this size are kept in memory and can be looked at in Request::body.
constexpr std::uint64_t kShortBody = 1 << 20;

/// Reads requests of HTTP/1.1. Bodies come with a Content-Length or in chunks; long ones go to a
/// file.
class RequestReader {
 public:
  /// Files are made in `folder`.
  RequestReader(int fd, std::filesystem::path folder);

  /// The next request without its body; nullopt at the connection's end.
  std::optional<Request> next();
  /// True when its body is longer than kShortBody, or may be.
  bool long_body() const { return chunked_ || remaining_ > kShortBody; }
  /// Reads the body into `request`. False when the connection ends first, or after `limit` bytes.
  bool read_body(Request& request, std::optional<std::uint64_t> limit);

 private:
  /// False: no more.
  using Sink = std::function<bool(std::string_view)>;

  bool receive();
  std::optional<std::string> line();
  bool take(std::uint64_t size, const Sink& keep);
  bool take_chunks(const Sink& keep);

  const int fd_;
  const std::filesystem::path folder_;
  std::string buffer_;
  std::uint64_t remaining_ = 0;
  bool chunked_ = false;
};

/// False when the peer has gone.
bool send_all(int fd, std::string_view bytes);
/// Sends a piece without copying it through this process when it lies in a file.
bool send_piece(int fd, const Bytes::Piece& piece, PieceFiles& files);
/// Closing then sends RST.
void reset_on_close(int fd);

}  // namespace lerobot::test_server
