#include "tests/support/http_connection.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/hub/url.h"

namespace lerobot::test_server {
namespace {

Request parse(const std::string& head) {
  Request request;
  std::size_t line_end = std::min(head.find("\r\n"), head.size());
  const std::string line = head.substr(0, line_end);
  request.method = line.substr(0, line.find(' '));
  const std::size_t target_at = std::min(request.method.size() + 1, line.size());
  const std::string target = line.substr(target_at, line.rfind(' ') - target_at);
  const std::size_t query = std::min(target.find('?'), target.size());
  request.raw_path = target.substr(0, query);
  request.path = hub::percent_decode(request.raw_path);
  if (query < target.size()) request.query = target.substr(query + 1);
  while (line_end < head.size()) {
    const std::size_t begin = line_end + 2;
    line_end = std::min(head.find("\r\n", begin), head.size());
    const std::string field = head.substr(begin, line_end - begin);
    const std::size_t colon = std::min(field.find(':'), field.size());
    const std::size_t value = std::min(field.find_first_not_of(' ', colon + 1), field.size());
    request.headers[lower_case(field.substr(0, colon))] = field.substr(value);
  }
  return request;
}

std::uint64_t number(std::string_view text, int base) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

/// A body on its way to memory or, once it is long, to a temporary file.
class Body {
 public:
  explicit Body(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void add(std::string_view bytes) {
    if (!file_) {
      text_ += bytes;
      if (text_.size() <= kShortBody) return;
      open();
      bytes = text_;
    }
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
      if (written < 0) fail_system(errno, "{}", file_->path);
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  void give(Request& request) {
    if (file_) {
      request.content = Bytes::of_file(file_);
    } else {
      request.body = text_;
      request.content = std::move(text_);
    }
  }

 private:
  void open() {
    static std::atomic<std::uint64_t> count = 0;
    file_ = std::make_shared<const Bytes::File>(
        folder_ / fmt::format("body-{}-{}", ::getpid(), count++), true);
    fd_ = UniqueFd(::open(file_->path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (fd_.get() < 0) fail_system(errno, "{}", file_->path);
  }

  const std::filesystem::path folder_;
  std::string text_;
  std::shared_ptr<const Bytes::File> file_;
  UniqueFd fd_;
};

}  // namespace

RequestReader::RequestReader(int fd, std::filesystem::path folder)
    : fd_(fd), folder_(std::move(folder)) {}

bool RequestReader::receive() {
  char block[64 << 10];
  const ssize_t got = ::recv(fd_, block, sizeof block, 0);
  if (got <= 0) return false;
  buffer_.append(block, static_cast<std::size_t>(got));
  return true;
}

std::optional<Request> RequestReader::next() {
  std::size_t end;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos)
    if (!receive()) return std::nullopt;
  Request request = parse(buffer_.substr(0, end));
  buffer_.erase(0, end + 4);
  chunked_ = lower_case(request.header("transfer-encoding")) == "chunked";
  remaining_ = number(request.header("content-length"), 10);
  if (lower_case(request.header("expect")) == "100-continue" &&
      !send_all(fd_, "HTTP/1.1 100 Continue\r\n\r\n"))
    return std::nullopt;
  return request;
}

bool RequestReader::read_body(Request& request, std::optional<std::uint64_t> limit) {
  Body body(folder_);
  std::uint64_t taken = 0;
  const Sink keep = [&](std::string_view bytes) {
    taken += bytes.size();
    if (limit && taken >= *limit) return false;
    body.add(bytes);
    return true;
  };
  if (limit == 0 || !(chunked_ ? take_chunks(keep) : take(remaining_, keep))) return false;
  body.give(request);
  return true;
}

bool RequestReader::take(std::uint64_t size, const Sink& keep) {
  while (size > 0) {
    if (buffer_.empty() && !receive()) return false;
    const std::uint64_t here = std::min<std::uint64_t>(size, buffer_.size());
    if (!keep(std::string_view(buffer_).substr(0, here))) return false;
    buffer_.erase(0, here);
    size -= here;
  }
  return true;
}

bool RequestReader::take_chunks(const Sink& keep) {
  const Sink drop = [](std::string_view) { return true; };
  while (true) {
    const auto size = line();
    if (!size) return false;
    const std::uint64_t bytes = number(*size, 16);
    if (!take(bytes, keep) || !take(2, drop)) return false;
    if (bytes == 0) return true;
  }
}

std::optional<std::string> RequestReader::line() {
  std::size_t end;
  while ((end = buffer_.find("\r\n")) == std::string::npos)
    if (!receive()) return std::nullopt;
  std::string text = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return text;
}

bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool send_piece(int fd, const Bytes::Piece& piece, PieceFiles& files) {
  if (piece.memory)
    return send_all(fd, std::string_view(*piece.memory).substr(piece.offset, piece.size));
  const int source = files.descriptor(piece);
  auto at = static_cast<off_t>(piece.offset);
  for (std::uint64_t left = piece.size; left > 0;) {
    const ssize_t sent = ::sendfile(fd, source, &at, left);
    if (sent <= 0) return false;
    left -= static_cast<std::uint64_t>(sent);
  }
  return true;
}

void reset_on_close(int fd) {
  const linger now{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

}  // namespace lerobot::test_server
