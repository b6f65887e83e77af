#include "tests/support/range_server.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <cstdio>
#include <netinet/tcp.h>
#include <stdexcept>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include "lerobot/hub/url.h"

namespace lerobot::test_server {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// The head of the next request, without its last line break; nullopt at the connection's end.
std::optional<std::string> read_head(int fd, std::string& buffer) {
  while (true) {
    const std::size_t end = buffer.find("\r\n\r\n");
    if (end != std::string::npos) {
      std::string head = buffer.substr(0, end);
      buffer.erase(0, end + 4);
      return head;
    }
    char block[8192];
    const ssize_t got = ::recv(fd, block, sizeof block, 0);
    if (got <= 0) return std::nullopt;
    buffer.append(block, static_cast<std::size_t>(got));
  }
}

Request parse(const std::string& head) {
  Request request;
  std::size_t line_end = std::min(head.find("\r\n"), head.size());
  const std::string line = head.substr(0, line_end);
  request.method = line.substr(0, line.find(' '));
  const std::size_t target_at = request.method.size() + 1;
  const std::string target = line.substr(target_at, line.rfind(' ') - target_at);
  const std::size_t query = std::min(target.find('?'), target.size());
  request.path = hub::percent_decode(target.substr(0, query));
  if (query < target.size()) request.query = target.substr(query + 1);
  while (line_end < head.size()) {
    const std::size_t begin = line_end + 2;
    line_end = std::min(head.find("\r\n", begin), head.size());
    const std::string field = head.substr(begin, line_end - begin);
    const std::size_t colon = std::min(field.find(": "), field.size() - 2);
    request.headers[lower(field.substr(0, colon))] = field.substr(colon + 2);
  }
  return request;
}

bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

/// Closing then sends RST.
void reset_on_close(int fd) {
  const linger now{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

void set_header(Headers& headers, const std::string& name, std::string value) {
  for (auto& [key, old] : headers)
    if (lower(key) == lower(name)) {
      old = std::move(value);
      return;
    }
  headers.emplace_back(name, std::move(value));
}

std::string etag_of(const std::string& content) {
  return fmt::format("\"{:016x}\"", std::hash<std::string>{}(content));
}

struct Answer {
  int status = 200;
  Headers headers;
  std::string body;
};

Answer plain(int status) {
  Answer answer{status, {}, fmt::format("status {}\n", status)};
  if (status == 304 || status == 204) answer.body.clear();
  return answer;
}

/// What a proper server says to "bytes=A-B", "bytes=A-" and anything else.
Answer ranged(const Request& request, const std::string& content, bool ignore_range) {
  Answer answer;
  answer.headers = {{"ETag", etag_of(content)},
                    {"Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT"},
                    {"Accept-Ranges", "bytes"}};
  const auto known = request.headers.find("if-none-match");
  if (known != request.headers.end() && known->second == etag_of(content)) {
    answer.status = 304;
    return answer;
  }
  const auto range = request.headers.find("range");
  unsigned long long first = 0;
  unsigned long long last = 0;
  const int fields = range == request.headers.end()
                         ? 0
                         : std::sscanf(range->second.c_str(), "bytes=%llu-%llu", &first, &last);
  if (fields == 0 || ignore_range) {
    answer.body = content;
    return answer;
  }
  if (first >= content.size()) {
    answer = plain(416);
    answer.headers = {{"Content-Range", fmt::format("bytes */{}", content.size())}};
    return answer;
  }
  if (fields == 1 || last >= content.size()) last = content.size() - 1;
  answer.status = 206;
  answer.body = content.substr(first, last - first + 1);
  answer.headers.emplace_back("Content-Range",
                              fmt::format("bytes {}-{}/{}", first, last, content.size()));
  return answer;
}

}  // namespace

Behaviour Behaviour::answer(int status, Headers headers) {
  Behaviour behaviour;
  behaviour.status = status;
  behaviour.headers = std::move(headers);
  return behaviour;
}

Behaviour Behaviour::redirect(int status, const std::string& location, Headers headers) {
  Behaviour behaviour = answer(status, std::move(headers));
  behaviour.headers.emplace_back("Location", location);
  return behaviour;
}

RangeServer::RangeServer(std::filesystem::path folder, Hook hook)
    : folder_(std::move(folder)),
      listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      hook_(std::move(hook)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener_.get(), 64) != 0 ||
      ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("the test server can't listen on 127.0.0.1");
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_loop(); });
}

RangeServer::~RangeServer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
  }
  stop_.notify_all();
  ::shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
}

void RangeServer::put(const std::string& path, std::string content) {
  const std::lock_guard lock(mutex_);
  files_[path] = std::move(content);
}

void RangeServer::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  files_.erase(path);
}

void RangeServer::set_hook(Hook hook) {
  const std::lock_guard lock(mutex_);
  hook_ = std::move(hook);
}

std::string RangeServer::url(const std::string& path, const std::string& host) const {
  return fmt::format("http://{}:{}{}", host, port_, path);
}

int RangeServer::connections() const {
  const std::lock_guard lock(mutex_);
  return connections_;
}

std::vector<Request> RangeServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

int RangeServer::requests(const std::string& method, const std::string& path) const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(
      requests_.begin(), requests_.end(),
      [&](const Request& request) { return request.method == method && request.path == path; }));
}

std::uint64_t RangeServer::body_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [path, bytes] : bytes_) sum += bytes;
  return sum;
}

std::uint64_t RangeServer::body_bytes(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto at = bytes_.find(path);
  return at == bytes_.end() ? 0 : at->second;
}

void RangeServer::accept_loop() {
  while (true) {
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    const std::lock_guard lock(mutex_);
    if (fd < 0 || stopping_) {
      if (fd >= 0) ::close(fd);
      return;
    }
    const int now = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now);
    open_.push_back(fd);
    threads_.emplace_back([this, fd, number = connections_++] { serve(number, fd); });
  }
}

void RangeServer::serve(int connection, int fd) {
  std::string buffer;
  while (const auto head = read_head(fd, buffer)) {
    Request request = parse(*head);
    request.connection = connection;
    Behaviour behaviour;
    {
      const std::lock_guard lock(mutex_);
      for (const Request& earlier : requests_)
        request.number += earlier.method == request.method && earlier.path == request.path;
      requests_.push_back(request);
      if (hook_) behaviour = hook_(request);
    }
    if (!answer(fd, request, behaviour)) break;
  }
  const std::lock_guard lock(mutex_);
  std::erase(open_, fd);
  ::close(fd);
}

bool RangeServer::answer(int fd, const Request& request, const Behaviour& behaviour) {
  if (behaviour.latency.count() > 0 && !pause(behaviour.latency)) return false;
  if (behaviour.reset && !behaviour.cut_after) {
    reset_on_close(fd);
    return false;
  }
  Answer answer;
  if (behaviour.status) {
    answer = plain(*behaviour.status);
  } else if (const auto found = content(request.path)) {
    answer = ranged(request, *found, behaviour.ignore_range);
  } else {
    answer = plain(404);
  }
  set_header(answer.headers, "Content-Length", std::to_string(answer.body.size()));
  if (behaviour.body) answer.body = *behaviour.body;
  for (const auto& [name, value] : behaviour.headers) set_header(answer.headers, name, value);

  std::string head = fmt::format("HTTP/1.1 {} Test\r\n", answer.status);
  for (const auto& [name, value] : answer.headers)
    if (std::find(behaviour.without.begin(), behaviour.without.end(), lower(name)) ==
        behaviour.without.end())
      head += fmt::format("{}: {}\r\n", name, value);
  if (!send_all(fd, head + "\r\n")) return false;
  if (request.method == "HEAD" || answer.status == 304) return true;
  const bool complete = send_body(fd, request, behaviour, answer.body);
  const bool has_length = std::find(behaviour.without.begin(), behaviour.without.end(),
                                    "content-length") == behaviour.without.end();
  return complete && has_length;  // without a length, the end of the connection ends the body
}

bool RangeServer::send_body(int fd, const Request& request, const Behaviour& behaviour,
                            std::string_view body) {
  const bool cut = behaviour.cut_after && *behaviour.cut_after < body.size();
  if (cut) body = body.substr(0, *behaviour.cut_after);
  const double rate = behaviour.bytes_per_second;
  // Pieces of a hundredth of a second.
  const std::size_t piece =
      rate > 0.0 ? std::max<std::size_t>(1, static_cast<std::size_t>(rate / 100.0)) : 1 << 20;
  for (std::size_t at = 0; at < body.size(); at += piece) {
    const std::string_view part = body.substr(at, piece);
    {
      // Before they are sent: who has them may ask for the count.
      const std::lock_guard lock(mutex_);
      bytes_[request.path] += part.size();
    }
    if (!send_all(fd, part)) return false;
    if (rate > 0.0 &&
        !pause(std::chrono::duration<double>(static_cast<double>(part.size()) / rate)))
      return false;
  }
  if (behaviour.stall) pause(std::chrono::hours(1));
  if (cut && behaviour.reset) reset_on_close(fd);
  return !cut && !behaviour.stall;
}

std::optional<std::string> RangeServer::content(const std::string& path) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = files_.find(path); at != files_.end()) return at->second;
  }
  if (folder_.empty() || path.find("/..") != std::string::npos) return std::nullopt;
  const std::filesystem::path file = folder_ / path.substr(1);
  if (!std::filesystem::is_regular_file(file)) return std::nullopt;
  return read_text_file(file);
}

bool RangeServer::pause(std::chrono::duration<double> time) {
  std::unique_lock lock(mutex_);
  return !stop_.wait_for(lock, time, [this] { return stopping_; });
}

}  // namespace lerobot::test_server
