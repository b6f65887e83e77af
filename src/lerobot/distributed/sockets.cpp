#include "lerobot/distributed/sockets.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "lerobot/base/error.h"

namespace lerobot::distributed {
namespace {

constexpr std::size_t kLongestLine = 1 << 16;
constexpr int kBacklog = 2048;

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

int milliseconds_of(std::chrono::milliseconds limit) {
  return static_cast<int>(std::clamp<std::int64_t>(limit.count(), 0, 1 << 30));
}

/// Listens at an address of one family; an empty socket with errno where that fails.
UniqueFd listen_in(int family, const sockaddr* address, socklen_t size) {
  UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) return {};
  const int on = 1, off = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(socket.get(), address, size) != 0 || ::listen(socket.get(), kBacklog) != 0) return {};
  return socket;
}

/// Waits for a connection under way. Returns errno's value, 0 for a connection.
int finish_connecting(int socket, std::chrono::milliseconds limit) {
  pollfd waiting{socket, POLLOUT, 0};
  int ready = 0;
  while ((ready = ::poll(&waiting, 1, milliseconds_of(limit))) < 0 && errno == EINTR) continue;
  if (ready == 0) return ETIMEDOUT;
  int problem = 0;
  socklen_t size = sizeof problem;
  if (ready < 0 || ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &problem, &size) != 0) return errno;
  return problem;
}

}  // namespace

UniqueFd listen_at(std::uint16_t port) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  UniqueFd socket = listen_in(AF_INET6, reinterpret_cast<const sockaddr*>(&six), sizeof six);
  if (socket.get() < 0 && errno == EAFNOSUPPORT) {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    socket = listen_in(AF_INET, reinterpret_cast<const sockaddr*>(&four), sizeof four);
  }
  if (socket.get() < 0) fail_system(errno, "cannot listen at port {}", port);
  return socket;
}

std::uint16_t port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    fail_system(errno, "a socket has no address");
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string own_address(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> text{};
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text.data(), text.size(),
                    nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  constexpr std::string_view kFourInSix = "::ffff:";
  std::string name(text.data());
  return name.starts_with(kFourInSix) ? name.substr(kFourInSix.size()) : name;
}

bool is_loopback(std::string_view address) {
  return address.empty() || address == "::1" || address.starts_with("127.");
}

Connection connect_to(const std::string& host, std::uint16_t port,
                      std::chrono::milliseconds limit) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (problem != 0) return {{}, fmt::format("its name is not known: {}", ::gai_strerror(problem))};
  const Addresses addresses(found, &::freeaddrinfo);

  int error = EHOSTUNREACH;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    UniqueFd socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.get() < 0) {
      error = errno;
      continue;
    }
    error = ::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) error = finish_connecting(socket.get(), limit);
    if (error == 0) return {std::move(socket), {}};
  }
  return {{}, system_error_text(error)};
}

LineSocket::LineSocket(UniqueFd socket) : socket_(std::move(socket)) {
  ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
  const int on = 1;
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void LineSocket::send(std::string_view line) {
  const std::size_t begin = outbox_.size();
  outbox_.append(line.substr(0, kLongestLine - 1));
  std::replace(outbox_.begin() + static_cast<std::ptrdiff_t>(begin), outbox_.end(), '\n', ' ');
  outbox_ += '\n';
  send_rest();
}

void LineSocket::send_rest() {
  while (!outbox_.empty() && !closed_) {
    const ssize_t sent = ::send(socket_.get(), outbox_.data(), outbox_.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      outbox_.erase(0, static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      // What the other end has sent before is still to be read: receive() will see the end.
      outbox_.clear();
    }
  }
}

std::vector<std::string> LineSocket::receive() {
  std::array<char, 4096> buffer;
  while (!closed_ && inbox_.size() <= kLongestLine) {
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got > 0) {
      inbox_.append(buffer.data(), static_cast<std::size_t>(got));
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      break;
    } else if (got == 0 || errno != EINTR) {
      closed_ = true;
    }
  }
  std::vector<std::string> lines;
  std::size_t begin = 0, end = 0;
  for (; (end = inbox_.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(inbox_.substr(begin, end - begin));
  inbox_.erase(0, begin);
  if (inbox_.size() > kLongestLine) closed_ = true;
  return lines;
}

void LineSocket::finish_sending() {
  send_rest();
  outbox_.clear();
  ::shutdown(socket_.get(), SHUT_WR);
}

void LineSocket::await_end(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!closed_ && std::chrono::steady_clock::now() < end) {
    pollfd waiting{socket_.get(), POLLIN, 0};
    ::poll(&waiting, 1,
           milliseconds_of(std::chrono::ceil<std::chrono::milliseconds>(
               end - std::chrono::steady_clock::now())));
    receive();
  }
}

}  // namespace lerobot::distributed
