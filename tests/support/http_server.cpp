#include "tests/support/http_server.h"

#include <algorithm>
#include <arpa/inet.h>
#include <csignal>
#include <exception>
#include <netinet/tcp.h>
#include <stdexcept>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

namespace lerobot::test_server {
namespace {

constexpr int kBacklog = 256;

/// sendfile(2) has no flag for it: a client that goes away would end the process. The signal goes
/// to the thread that writes, so blocking it there suffices.
void block_pipe_signal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

bool is_without(const Behaviour& behaviour, const std::string& header) {
  return std::find(behaviour.without.begin(), behaviour.without.end(), lower_case(header)) !=
         behaviour.without.end();
}

std::string head_of(const Answer& answer, const Behaviour& behaviour) {
  std::string head = fmt::format("HTTP/1.1 {} Test\r\n", answer.status);
  for (const auto& [name, value] : answer.headers)
    if (!is_without(behaviour, name)) head += fmt::format("{}: {}\r\n", name, value);
  return head + "\r\n";
}

}  // namespace

HttpServer::HttpServer(Options options)
    : options_(std::move(options)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener_.get(), kBacklog) != 0 ||
      ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("the test server can't listen on 127.0.0.1");
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_loop(); });
}

HttpServer::~HttpServer() {
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

std::string HttpServer::url(const std::string& path, const std::string& host) const {
  return fmt::format("http://{}:{}{}", host, port_, path);
}

int HttpServer::connections() const {
  const std::lock_guard lock(mutex_);
  return connections_;
}

std::uint64_t HttpServer::body_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [path, bytes] : bytes_) sum += bytes;
  return sum;
}

std::uint64_t HttpServer::body_bytes(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto at = bytes_.find(path);
  return at == bytes_.end() ? 0 : at->second;
}

void HttpServer::accept_loop() {
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

void HttpServer::serve(int connection, int fd) {
  block_pipe_signal();
  RequestReader reader(fd, options_.folder);
  try {
    while (serve_one(reader, connection, fd)) {
    }
  } catch (const std::exception& error) {
    // A body that can't be kept or sent: the client sees a broken connection, the log says why.
    fmt::print(stderr, "the test server gives up a connection: {}\n", error.what());
  }
  const std::lock_guard lock(mutex_);
  std::erase(open_, fd);
  ::close(fd);
}

bool HttpServer::serve_one(RequestReader& reader, int connection, int fd) {
  auto request = reader.next();
  if (!request) return false;
  request->connection = connection;
  request->server = options_.name;
  {
    const std::lock_guard lock(mutex_);
    request->number = counts_[{request->method, request->path}]++;
  }
  const bool asked_before = reader.long_body();
  Behaviour behaviour;
  const bool has_hook = static_cast<bool>(options_.hook);
  if (has_hook && asked_before) behaviour = options_.hook(*request);
  if (!reader.read_body(*request, behaviour.cut_upload_after)) return false;
  if (has_hook && !asked_before) behaviour = options_.hook(*request);
  if (behaviour.cut_upload_after) return false;

  if (behaviour.latency.count() > 0 && !pause(behaviour.latency)) return false;
  if (behaviour.reset && !behaviour.cut_after) {
    reset_on_close(fd);
    return false;
  }
  Answer answer = handle(*request, behaviour);
  return !behaviour.lose_answer && send(fd, *request, behaviour, std::move(answer));
}

Answer HttpServer::handle(Request request, const Behaviour& behaviour) const {
  if (behaviour.status) {
    Answer answer = plain_answer(*behaviour.status);
    if (behaviour.body) answer.body = *behaviour.body;
    return answer;
  }
  if (behaviour.ignore_range) request.headers.erase("range");
  try {
    return options_.handler(request);
  } catch (const std::exception& error) {
    return {500, {{"Content-Type", "text/plain"}}, std::string(error.what())};
  }
}

bool HttpServer::send(int fd, const Request& request, const Behaviour& behaviour, Answer answer) {
  // Another content than the proper one comes under the proper one's length: a lie, as ordered.
  const bool replaced = behaviour.body && !behaviour.status;
  const bool lies = replaced && answer.status < 300;
  if (replaced && !lies) answer.body = *behaviour.body;
  set_header(answer.headers, "Content-Length", std::to_string(answer.body.size()));
  if (lies) answer.body = *behaviour.body;
  for (const auto& [name, value] : behaviour.headers) set_header(answer.headers, name, value);
  if (!send_all(fd, head_of(answer, behaviour))) return false;
  if (request.method == "HEAD" || answer.status == 304) return true;
  const bool complete = send_body(fd, request.path, behaviour, std::move(answer.body));
  // Without a length, the end of the connection ends the body.
  return complete && !is_without(behaviour, "content-length");
}

bool HttpServer::send_body(int fd, const std::string& path, const Behaviour& behaviour,
                           Bytes body) {
  const bool cut = behaviour.cut_after && *behaviour.cut_after < body.size();
  if (cut) body = body.part(0, *behaviour.cut_after);
  const double rate = behaviour.bytes_per_second;
  // Limited ones go in pieces of a hundredth of a second.
  const std::uint64_t longest =
      rate > 0.0 ? std::max<std::uint64_t>(1, static_cast<std::uint64_t>(rate / 100.0)) : 4 << 20;
  PieceFiles files;
  for (Bytes::Piece piece : body.pieces()) {
    for (std::uint64_t left = piece.size; left > 0; left -= piece.size) {
      piece.size = std::min(left, longest);
      {
        // Before they are sent: who has them may ask for the count.
        const std::lock_guard lock(mutex_);
        bytes_[path] += piece.size;
      }
      if (!send_piece(fd, piece, files)) return false;
      if (rate > 0.0 &&
          !pause(std::chrono::duration<double>(static_cast<double>(piece.size) / rate)))
        return false;
      piece.offset += piece.size;
    }
  }
  if (behaviour.stall) pause(std::chrono::hours(1));
  if (cut && behaviour.reset) reset_on_close(fd);
  return !cut && !behaviour.stall;
}

bool HttpServer::pause(std::chrono::duration<double> time) {
  std::unique_lock lock(mutex_);
  return !stop_.wait_for(lock, time, [this] { return stopping_; });
}

}  // namespace lerobot::test_server
